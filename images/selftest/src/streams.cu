// Work that alternates between two streams, each step ordered after the last by an event.
#include "selftest.cuh"

__global__ void multiply_add(unsigned *values, int count, unsigned factor, unsigned summand) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        values[i] = values[i] * factor + summand;
    }
}

static std::string streams() {
    const int count = 1 << 18;
    const int block = 256;
    const int steps = 32;
    std::vector<unsigned> expected(count);
    for (int i = 0; i < count; ++i) {
        expected[i] = i;
    }
    const selftest::DeviceArray<unsigned> device(expected);

    cudaStream_t stream[2];
    cudaEvent_t begin, done, end;
    for (auto &each : stream) {
        CUDA(cudaStreamCreateWithFlags(&each, cudaStreamNonBlocking));
    }
    CUDA(cudaEventCreate(&begin));
    CUDA(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    CUDA(cudaEventCreate(&end));

    CUDA(cudaEventRecord(begin, stream[0]));
    CUDA(cudaEventRecord(done, stream[0]));
    for (int step = 0; step < steps; ++step) {
        const cudaStream_t current = stream[step % 2];
        // The order matters: a product and a sum do not commute.
        const unsigned factor = 2 * step + 3;
        CUDA(cudaStreamWaitEvent(current, done, 0));
        multiply_add<<<count / block, block, 0, current>>>(device.get(), count, factor, step);
        selftest::check_launch("multiply_add");
        CUDA(cudaEventRecord(done, current));
        for (unsigned &value : expected) {
            value = value * factor + step;
        }
    }
    CUDA(cudaEventRecord(end, stream[(steps - 1) % 2]));
    CUDA(cudaEventSynchronize(end));
    CUDA(cudaEventQuery(end));
    CUDA(cudaStreamQuery(stream[0]));
    float milliseconds = -1.0f;
    CUDA(cudaEventElapsedTime(&milliseconds, begin, end));
    if (!(milliseconds >= 0.0f)) {
        throw selftest::Failure("the end is before the beginning: " + std::to_string(milliseconds) + " ms");
    }
    selftest::expect_equal(device.to_host(), expected, "value");

    for (const auto &event : {begin, done, end}) {
        CUDA(cudaEventDestroy(event));
    }
    for (const auto &each : stream) {
        CUDA(cudaStreamDestroy(each));
    }
    return std::to_string(steps) + " kernels in order over 2 streams";
}

int main() { return selftest::run("streams", streams); }
