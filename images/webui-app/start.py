"""Start text-generation-webui as it is, and fit it to this stack.

Its page asks for a Gradio that its author builds from 4.37.2 and that is on no package index.
Release 4.37.2 serves as well: what is asked of it and is not there is added here. Its API lacks
what a gateway asks a model server for: whether a model is loaded, how long its context is, how many
tokens a chat takes.
"""

from __future__ import annotations

import functools
import runpy
import sys
from typing import Any

APP = "/opt/webui/app"


def fit_gradio() -> None:
    """The names that the author's Gradio has and the release has not."""
    import huggingface_hub

    # The release imports it for sign-in with Hugging Face, of which nothing is used here.
    if not hasattr(huggingface_hub, "HfFolder"):
        huggingface_hub.HfFolder = None
    import gradio

    class Blocks(gradio.Blocks):  # type: ignore[misc]
        def __init__(self, *args: object, dark_theme: bool | None = None, **others: object) -> None:
            del dark_theme  # the page remembers it by itself
            super().__init__(*args, **others)

        def get_api_info(self, all_endpoints: bool = False) -> dict[str, Any]:  # noqa: ARG002, FBT001, FBT002
            """The page's own description, which the release cannot make with newer pydantics."""
            return {"named_endpoints": {}, "unnamed_endpoints": {}}

    gradio.Blocks = Blocks
    gradio.Headless = functools.partial(gradio.JSON, visible=False)
    gradio.DragDrop = functools.partial(gradio.Textbox, lines=7)


def fit_api() -> None:
    """What the gateway asks, in the words of vLLM where there are any."""
    from modules import shared
    from modules.api import completions, models, script, tokens, typing
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response

    async def health(_: Request) -> Response:
        """200 while a model is loaded and its server lives."""
        process = getattr(shared.model, "process", None)
        ended = process is not None and process.poll() is not None
        return Response(status_code=503 if shared.model is None or ended else 200)

    async def tokenize(request: Request) -> Response:
        """How many tokens the messages take in the model's template."""
        asked = typing.ChatCompletionRequest(**await request.json())
        chat = completions.chat_completions_common(typing.to_dict(asked), prompt_only=True)
        *_, last = chat
        return JSONResponse({"count": tokens.token_count(last["prompt"])["length"]})

    script.app.add_route("/health", health)
    script.app.add_route("/tokenize", tokenize, methods=["POST"])

    described = models.model_info_dict

    def with_context(name: str) -> dict[str, Any]:
        return {**described(name), "max_model_len": shared.settings["truncation_length"]}

    models.model_info_dict = with_context


def main() -> None:
    sys.path.insert(0, APP)
    fit_gradio()
    fit_api()
    runpy.run_path(f"{APP}/server.py", run_name="__main__")


if __name__ == "__main__":
    main()
