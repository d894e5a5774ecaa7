/* A fake of ZLUDA's libcuda.so, for tests: a CUDA driver that finds no device. */
int cuInit(unsigned int flags)
{
    (void)flags;
    return 100; /* CUDA_ERROR_NO_DEVICE */
}

int cuDeviceGetCount(int *count)
{
    *count = 0;
    return 3; /* CUDA_ERROR_NOT_INITIALIZED */
}
