/* Ask the CUDA driver that the loader finds how many devices it has.
 * Prints one line; succeeds when there is at least one. */
#include <dlfcn.h>
#include <stdio.h>

static void *driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    return library ? library : dlopen("libcuda.so", RTLD_NOW);
}

int main(void)
{
    void *library = driver();
    if (!library) {
        fprintf(stderr, "cuda-devices: the driver does not load: %s\n", dlerror());
        return 1;
    }
    int (*init)(unsigned int) = (int (*)(unsigned int))dlsym(library, "cuInit");
    int (*get_count)(int *) = (int (*)(int *))dlsym(library, "cuDeviceGetCount");
    if (!init || !get_count) {
        fprintf(stderr, "cuda-devices: libcuda.so is no CUDA driver\n");
        return 1;
    }
    int status = init(0);
    if (status) {
        fprintf(stderr, "cuda-devices: cuInit answered %d%s\n", status,
                status == 100 ? " (CUDA_ERROR_NO_DEVICE)" : "");
        return 1;
    }
    int count = 0;
    status = get_count(&count);
    if (status || count < 1) {
        fprintf(stderr, "cuda-devices: the driver lists %d devices (status %d)\n", count, status);
        return 1;
    }
    printf("cuda-devices: %d\n", count);
    return 0;
}
