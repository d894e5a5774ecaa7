// Copies in each direction: pageable, pinned and asynchronous, pitched; and device memory set to bytes.
#include "selftest.cuh"

using selftest::DeviceArray;
using selftest::expect_equal;

static std::vector<unsigned> pattern(size_t count) {
    std::vector<unsigned> values(count);
    for (size_t i = 0; i < count; ++i) {
        values[i] = static_cast<unsigned>(i) * 2654435761u;
    }
    return values;
}

static void through_two_device_arrays(const std::vector<unsigned> &values) {
    const DeviceArray<unsigned> first(values), second(values.size());
    CUDA(cudaMemcpy(second.get(), first.get(), first.bytes(), cudaMemcpyDeviceToDevice));
    expect_equal(second.to_host(), values, "copy");
}

static void through_pinned_memory(const std::vector<unsigned> &values) {
    const DeviceArray<unsigned> device(values.size());
    unsigned *pinned = nullptr;
    CUDA(cudaMallocHost(reinterpret_cast<void **>(&pinned), device.bytes()));
    cudaStream_t stream;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));

    std::copy(values.begin(), values.end(), pinned);
    CUDA(cudaMemcpyAsync(device.get(), pinned, device.bytes(), cudaMemcpyHostToDevice, stream));
    CUDA(cudaStreamSynchronize(stream));
    std::fill(pinned, pinned + values.size(), 0u);
    CUDA(cudaMemcpyAsync(pinned, device.get(), device.bytes(), cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));
    expect_equal(std::vector<unsigned>(pinned, pinned + values.size()), values, "pinned copy");

    CUDA(cudaStreamDestroy(stream));
    CUDA(cudaFreeHost(pinned));
}

static void in_rows(const std::vector<unsigned> &values) {
    const size_t width = 37;
    const size_t height = 29;
    const size_t row = width * sizeof(unsigned);
    void *rows = nullptr;
    size_t pitch = 0;
    CUDA(cudaMallocPitch(&rows, &pitch, row, height));
    CUDA(cudaMemcpy2D(rows, pitch, values.data(), row, row, height, cudaMemcpyHostToDevice));
    std::vector<unsigned> found(width * height);
    CUDA(cudaMemcpy2D(found.data(), row, rows, pitch, row, height, cudaMemcpyDeviceToHost));
    CUDA(cudaFree(rows));
    expect_equal(found, std::vector<unsigned>(values.begin(), values.begin() + width * height), "row copy");
}

static void set_to_bytes(size_t count) {
    const DeviceArray<unsigned> device(count);
    CUDA(cudaMemset(device.get(), 0xa5, device.bytes()));
    expect_equal(device.to_host(), std::vector<unsigned>(count, 0xa5a5a5a5u), "set memory");
}

static std::string memory() {
    const std::vector<unsigned> values = pattern((1 << 20) + 5);
    through_two_device_arrays(values);
    through_pinned_memory(values);
    in_rows(values);
    set_to_bytes(values.size());
    return "pageable, pinned, pitched and device copies of " + std::to_string(values.size() * 4) + " bytes";
}

int main() { return selftest::run("memory", memory); }
