#!/bin/sh
# Rendered by zluda-stack from images/_compose/host-env.sh.j2 and the catalogue; change those.
# Write compose/.env, with what only this host knows of itself, and make an API key:
#
#   sh compose/host-env.sh && docker compose -f compose/inference.yml up --build
#
# and without a card:
#
#   ZLUDA_STACK_GPU=none sh compose/host-env.sh && docker compose -f compose/cpu.yml up --build
#
# ZLUDA_STACK_PROFILE=native in the environment chooses a card for compose/native.yml, without ZLUDA, and
# ZLUDA_STACK_PROFILE=webui one for compose/webui.yml (compose/webui-cpu.yml without a card).
# ZLUDA_STACK_GPU also names one card of several: by gfx target, PCI address or number of `zluda-stack gpus`.
# HSA_OVERRIDE_GFX_VERSION (such as 10.3.0) in the environment makes the card pass for another target.
# Other settings in compose/.env are kept. Nothing here needs root. Where no card can be used and one is
# wanted, compose/.env is written all the same, and the exit code is 4. For one that was named and cannot be
# taken, nothing is written, and the exit code is 2.
set -eu

folder=$(cd "$(dirname "$0")" && pwd)
env_file=$folder/.env
key_file=$folder/secrets/api_key
hashes_file=$folder/secrets/api_key_hashes
# Where /sys and /dev of this host are; the tests have others.
root=${HOST_ROOT:-}
kfd=$root/dev/kfd
profile=${ZLUDA_STACK_PROFILE:-translated}
wanted=${ZLUDA_STACK_GPU:-}
umask 077

usage() {
    cat <<USAGE
Usage: sh $0

Write $env_file, with what only this host knows of itself, and make an API key
beside it. Other settings in that file are kept. It takes no arguments and needs no root.

ZLUDA_STACK_GPU=none in the environment says that no card is wanted. Without it the exit code is 4 where
none can be used; the file is written all the same.
ZLUDA_STACK_GPU=gfx1100 (a target), 03:00.0 (a PCI address) or 1 (a number of \`zluda-stack gpus\`) names the
card. Where that one cannot be taken the exit code is 2, and nothing is written. auto is the best card.
ZLUDA_STACK_PROFILE=native in the environment chooses a card for native.yml, without ZLUDA, and
ZLUDA_STACK_PROFILE=webui one for webui.yml (webui-cpu.yml without a card).
HSA_OVERRIDE_GFX_VERSION (such as 10.3.0) in the environment makes the card pass for another target.
USAGE
}

say() { echo "$1" >&2; }

fail() {
    say "error: HSA_OVERRIDE_GFX_VERSION=$1"
    say "hint: Most cards need none: unset it."
    exit 1
}

# Fill `server` with what computes for the profile, and `compose_file` and `cpu_file` with where that is
# described, with a card and without.
read_profile() {
    case $profile in
    translated) server='ZLUDA' compose_file=inference.yml cpu_file=cpu.yml ;;
    native) server='the native profile' compose_file=native.yml cpu_file=cpu.yml ;;
    webui) server='the webui profile' compose_file=webui.yml cpu_file=webui-cpu.yml ;;
    *)
        say "error: ZLUDA_STACK_PROFILE=$profile is no profile"
        say "hint: It is one of translated, native, webui."
        exit 1
        ;;
    esac
}

# The gfx target for gfx_target_version (major * 10000 + minor * 100 + stepping).
target_name() { printf 'gfx%d%x%x' $(($1 / 10000)) $(($1 / 100 % 100)) $(($1 % 100)); }

# For a target that the profile serves: "discrete" or "integrated", and the target whose rocBLAS kernels
# it computes with, which is itself, or another with the HSA_OVERRIDE_GFX_VERSION that goes with it,
# or "none". Nothing for any other target.
support() {
    case $profile.$1 in
    translated.gfx1010) echo "discrete gfx1010" ;;
    translated.gfx1011) echo "discrete none" ;;
    translated.gfx1012) echo "discrete gfx1012" ;;
    translated.gfx1030) echo "discrete gfx1030" ;;
    translated.gfx1031) echo "discrete gfx1030 10.3.0" ;;
    translated.gfx1032) echo "discrete gfx1030 10.3.0" ;;
    translated.gfx1034) echo "discrete gfx1030 10.3.0" ;;
    translated.gfx1035) echo "integrated gfx1030 10.3.0" ;;
    translated.gfx1036) echo "integrated none" ;;
    translated.gfx1100) echo "discrete gfx1100" ;;
    translated.gfx1101) echo "discrete gfx1101" ;;
    translated.gfx1102) echo "discrete gfx1102" ;;
    translated.gfx1103) echo "integrated gfx1103" ;;
    translated.gfx1150) echo "integrated gfx1150" ;;
    translated.gfx1151) echo "integrated gfx1151" ;;
    translated.gfx1152) echo "integrated none" ;;
    translated.gfx1153) echo "integrated none" ;;
    translated.gfx1200) echo "discrete gfx1200" ;;
    translated.gfx1201) echo "discrete gfx1201" ;;
    native.gfx900) echo "discrete gfx900" ;;
    native.gfx906) echo "discrete gfx906" ;;
    native.gfx908) echo "discrete gfx908" ;;
    native.gfx90a) echo "discrete gfx90a" ;;
    native.gfx942) echo "discrete gfx942" ;;
    native.gfx950) echo "discrete gfx950" ;;
    native.gfx1010) echo "discrete gfx1010" ;;
    native.gfx1012) echo "discrete gfx1012" ;;
    native.gfx1030) echo "discrete gfx1030" ;;
    native.gfx1031) echo "discrete gfx1030 10.3.0" ;;
    native.gfx1032) echo "discrete gfx1030 10.3.0" ;;
    native.gfx1034) echo "discrete gfx1030 10.3.0" ;;
    native.gfx1035) echo "integrated gfx1030 10.3.0" ;;
    native.gfx1100) echo "discrete gfx1100" ;;
    native.gfx1101) echo "discrete gfx1101" ;;
    native.gfx1102) echo "discrete gfx1102" ;;
    native.gfx1103) echo "integrated gfx1103" ;;
    native.gfx1150) echo "integrated gfx1150" ;;
    native.gfx1151) echo "integrated gfx1151" ;;
    native.gfx1152) echo "integrated none" ;;
    native.gfx1153) echo "integrated none" ;;
    native.gfx1200) echo "discrete gfx1200" ;;
    native.gfx1201) echo "discrete gfx1201" ;;
    webui.gfx900) echo "discrete gfx900" ;;
    webui.gfx906) echo "discrete gfx906" ;;
    webui.gfx908) echo "discrete gfx908" ;;
    webui.gfx90a) echo "discrete gfx90a" ;;
    webui.gfx942) echo "discrete gfx942" ;;
    webui.gfx950) echo "discrete gfx950" ;;
    webui.gfx1010) echo "discrete gfx1010" ;;
    webui.gfx1012) echo "discrete gfx1012" ;;
    webui.gfx1030) echo "discrete gfx1030" ;;
    webui.gfx1031) echo "discrete gfx1030 10.3.0" ;;
    webui.gfx1032) echo "discrete gfx1030 10.3.0" ;;
    webui.gfx1034) echo "discrete gfx1030 10.3.0" ;;
    webui.gfx1035) echo "integrated gfx1030 10.3.0" ;;
    webui.gfx1100) echo "discrete gfx1100" ;;
    webui.gfx1101) echo "discrete gfx1101" ;;
    webui.gfx1102) echo "discrete gfx1102" ;;
    webui.gfx1103) echo "integrated gfx1103" ;;
    webui.gfx1150) echo "integrated gfx1150" ;;
    webui.gfx1151) echo "integrated gfx1151" ;;
    webui.gfx1152) echo "integrated none" ;;
    webui.gfx1153) echo "integrated none" ;;
    webui.gfx1200) echo "discrete gfx1200" ;;
    webui.gfx1201) echo "discrete gfx1201" ;;
    esac
}

# The value of key $2 in the properties file $1; nothing when it is not there.
property() { awk -v key="$2" '$1 == key { print $2; exit }' "$1" 2>/dev/null || true; }

# Bytes of the memory that belongs to the card of node $1 (heap types 1 and 2).
card_memory() {
    total=0
    for bank in "$1"/mem_banks/*/properties; do
        case $(property "$bank" heap_type) in
        1 | 2) total=$((total + $(property "$bank" size_in_bytes))) ;;
        esac
    done
    echo "$total"
}

# Bytes that programs can use on the card of node $1 with render node $2, which is $3: integrated
# graphics take what they need of the machine's memory, up to their GTT size.
usable_memory() {
    own=$(card_memory "$1") gtt=0
    case $3 in integrated*) gtt=$(cat "$root/sys/class/drm/${2##*/}/device/mem_info_gtt_total" 2>/dev/null || true) ;; esac
    if [ "${gtt:-0}" -gt "$own" ]; then echo "$gtt"; else echo "$own"; fi
}

# Fill `wish` with which card is wanted, in the form that `is_meant` compares: nothing for the best, none, a
# number, a PCI address, or a gfx target. Any other word means no card.
read_wish() {
    read -r wish <<WISH
$(printf '%s' "$wanted" | tr '[:upper:]' '[:lower:]')
WISH
    case $wish in
    auto) wish='' ;;
    [0-9] | [1-9][0-9]) ;;
    0[0-9]) wish=${wish#0} ;;
    *:*) wish=$(kernel_address "$wish") ;;
    *)
        if printf '%s\n' "$wish" | grep -Eqx '(gfx)?-?[0-9]{1,4}[0-9a-f]{0,2}'; then
            wish=${wish#gfx}
            wish=gfx${wish#-}
        fi
        ;;
    esac
}

# The PCI address $1 with as many digits as the kernel writes: 0000:03:00.0 for 00000000:3:0.0.
kernel_address() {
    echo "$1" | sed -E 's/^([0-9a-f]):/0\1:/
        s/:([0-9a-f]):/:0\1:/
        s/:([0-9a-f])\./:0\1./
        s/^0{1,4}([0-9a-f]{4,}:.*:)/\1/'
}

# The PCI address of the card with the properties file $1; nothing when the kernel does not tell it.
address() {
    location=$(property "$1" location_id) domain=$(property "$1" domain)
    [ -n "$location" ] || return 0
    printf '%04x:%02x:%02x.%d' "${domain:-0}" $((location >> 8 & 255)) $((location >> 3 & 31)) $((location & 7))
}

# True when the card with the number $1, target $2 and PCI address $3 is wanted.
is_meant() {
    case $wish in
    '') ;;
    *:*) [ "$wish" = "$3" ] || [ "$wish" = "${3#*:}" ] ;;
    *) [ "$wish" = "$1" ] || [ "$wish" = "$2" ] ;;
    esac
}

# End before anything is written when the card that was named is not one that can be taken.
check_wish() {
    case $wish in '' | none) return 0 ;; esac
    if [ "$meant" = 0 ]; then
        why='names no card that is here'
    elif [ "$meant" -gt 1 ] && [ "$wish" != "${wish#*:}" ]; then
        why='is the PCI address of several cards'
    elif [ -z "$target" ]; then
        why='names a card that cannot be used'
    else
        return 0
    fi
    say "error: ZLUDA_STACK_GPU=$wanted $why"
    say "hint: Here: ${here:-no AMD card}. It takes a number of these, a gfx target, a PCI address, auto or none."
    exit 2
}

# Fill `given` with the override of the environment, without the blanks around it.
read_override() {
    read -r given <<GIVEN
${HSA_OVERRIDE_GFX_VERSION:-}
GIVEN
    [ -n "$given" ] || return 0
    printf '%s\n' "$given" | grep -Eqx '([0-9]{1,2}\.){2}[0-9]{1,2}' ||
        fail "$given has the wrong form; it must be like 11.0.0"
}

# Why a card cannot be used for whose target `support` says $1; nothing when it can.
hindrance() {
    case $1 in
    '') echo "which $server does not support" ;;
    *" none")
        [ -n "$given" ] || echo "for which rocBLAS has no kernels; HSA_OVERRIDE_GFX_VERSION can name" \
            "a target that has some (unproven)"
        ;;
    esac
}

# Fill name, place and node with the target, PCI address and render node of the card whose properties are the
# file $1 and whose number in `zluda-stack gpus` is $2, and add it to `here`.
read_card() {
    version=$(property "$1" gfx_target_version)
    name='a card of unknown target'
    if [ "${version:-0}" -gt 0 ]; then name=$(target_name "$version"); fi
    place=$(address "$1")
    node=/dev/dri/renderD$(property "$1" drm_render_minor)
    here="${here:+$here; }$2: $name${place:+ at $place}"
}

# Fill target, render_node, kernels and override with the best wanted card that can be used: discrete before
# integrated, then most memory, then the kernel's order. Fill `meant` with how many are wanted.
choose_card() {
    target='' render_node='' kernels='' override='' best=-1 index=-1 here='' meant=0
    nodes=$root/sys/class/kfd/kfd/topology/nodes
    for number in $(ls "$nodes" 2>/dev/null | sort -n); do
        units=$(property "$nodes/$number/properties" simd_count)
        [ "${units:-0}" -gt 0 ] || continue
        index=$((index + 1))
        read_card "$nodes/$number/properties" "$index"
        is_meant "$index" "$name" "$place" || continue
        meant=$((meant + 1))
        found=$(support "$name")
        why=$(hindrance "$found")
        if [ -n "$why" ]; then
            say "skipped: $name, $why"
            continue
        elif [ ! -e "$root$node" ]; then
            say "skipped: $name, since $root$node is missing"
            continue
        fi
        rank=$(usable_memory "$nodes/$number" "$node" "$found")
        case $found in discrete*) rank=$((rank + (1 << 62))) ;; esac
        if [ "$rank" -gt "$best" ]; then
            best=$rank target=$name render_node=$node
            read -r _ kernels override <<FOUND
$found
FOUND
        fi
    done
}

# With an override ROCm takes the card for another target, and asks for the kernels of that one.
apply_override() {
    override=$given
    kernels=$(target_name "$(echo "$given" | awk -F. '{ print $1 * 10000 + $2 * 100 + $3 }')")
    case $(support "$kernels") in
    *" $kernels") ;;
    '') fail "$given makes the card pass for $kernels, which $server does not support" ;;
    *) fail "$given makes the card pass for $kernels, for which rocBLAS has no kernels" ;;
    esac
}

ensure_key() {
    mkdir -p "$folder/secrets"
    if [ ! -s "$key_file" ]; then
        random=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
        echo "zs-$random" >"$key_file.new"
        mv "$key_file.new" "$key_file"
    fi
    # Lines with a blank are keys that somebody added, each with its name and limits.
    {
        tr -d '\n' <"$key_file" | sha256sum | cut -d ' ' -f 1
        [ ! -f "$hashes_file" ] || grep ' ' "$hashes_file" || true
    } >"$hashes_file.new"
    # Written over and not replaced, since a running container has mounted this very file. Its user
    # must read it; of 256 random bits the digest gives nothing away.
    cat "$hashes_file.new" >"$hashes_file"
    chmod 0644 "$hashes_file"
    rm "$hashes_file.new"
}

# The lines of the present .env that are not this script's.
other_settings() {
    [ -f "$env_file" ] || return 0
    grep -vE '^(HOST_(ROOT|KFD|KFD_GID|RENDER_NODE|RENDER_GID)|ZLUDA_STACK_(GPU|KERNEL_TARGET|HSA_OVERRIDE|API_KEY_HASHES_FILE|UID|GID))=|^# (Written|Rendered) by' \
        "$env_file" || true
}

write_env() {
    {
        echo "# Written by compose/host-env.sh: what only this host knows. It holds no secret."
        echo "ZLUDA_STACK_API_KEY_HASHES_FILE=./secrets/api_key_hashes"
        echo "ZLUDA_STACK_UID=$(id -u)"
        echo "ZLUDA_STACK_GID=$(id -g)"
        if [ -n "$target" ]; then
            echo "ZLUDA_STACK_GPU=$target"
            [ -z "$root" ] || echo "HOST_ROOT=$root"
            echo "HOST_KFD=/dev/kfd"
            kfd_gid=$(stat -c %g "$kfd") render_gid=$(stat -c %g "$root$render_node")
            echo "HOST_KFD_GID=$kfd_gid"
            echo "HOST_RENDER_NODE=$render_node"
            # Compose refuses a gid that stands twice.
            [ "$render_gid" = "$kfd_gid" ] || echo "HOST_RENDER_GID=$render_gid"
            [ "$kernels" = "$target" ] || echo "ZLUDA_STACK_KERNEL_TARGET=$kernels"
            [ -z "$override" ] || echo "ZLUDA_STACK_HSA_OVERRIDE=$override"
        fi
        other_settings
    } >"$env_file.new"
    mv "$env_file.new" "$env_file"
}

# True when a card is a must: one is wanted, and the folder was not rendered for the CPU.
needs_card() {
    [ "$wish" != none ] || return 1
    [ -f "$folder/$compose_file" ] || [ ! -f "$folder/$cpu_file" ]
}

# The command that starts compose file $1, as the user can type it.
start_of() {
    case $folder in
    *[!A-Za-z0-9_./-]*) echo "docker compose -f '$(echo "$folder/$1" | sed "s/'/'\\\\''/g")' up --build" ;;
    *) echo "docker compose -f $folder/$1 up --build" ;;
    esac
}

say_no_card() {
    say "error: no AMD card that can be used is here, so $compose_file cannot run"
    if [ -f "$folder/$cpu_file" ]; then
        say "hint: Without a card: $(start_of $cpu_file)"
    else
        say "hint: Run this on the host with the card."
    fi
}

# The next step with the first of these compose files that is here; a rendered folder has but one.
say_next() {
    for name in "$@"; do
        [ -f "$folder/$name" ] || continue
        say "next: $(start_of "$name")"
        break
    done
}

case ${1:-} in
-h | --help)
    usage
    exit 0
    ;;
esac
if [ $# -gt 0 ]; then
    say "error: '$1' was given, and this script takes no arguments"
    say "hint: sh $0 --help"
    exit 2
fi
read_profile
read_override
read_wish
target='' render_node='' kernels='' override=''
if [ "$wish" != none ]; then choose_card; fi
check_wish
if [ -n "$target" ] && [ ! -e "$kfd" ]; then
    say "skipped: $target, since $kfd is missing"
    target=''
fi
if [ -n "$target" ] && [ -n "$given" ]; then apply_override; fi
ensure_key
write_env
say "wrote $env_file; the API key is in $key_file"
if [ -n "$target" ]; then
    say "card: $target at $render_node"
    say_next $compose_file $cpu_file
elif needs_card; then
    say_no_card
    exit 4
else
    say "card: none"
    say_next $cpu_file
fi
