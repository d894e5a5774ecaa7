// One kernel over a vector whose length is no multiple of the block size.
#include "selftest.cuh"

__global__ void add(const float *a, const float *b, float *sum, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        sum[i] = a[i] + b[i];
    }
}

static std::string vector_add() {
    const int count = (1 << 20) + 3;
    const int block = 256;
    std::vector<float> a(count), b(count), expected(count);
    for (int i = 0; i < count; ++i) {
        a[i] = static_cast<float>(i % 1000);
        b[i] = static_cast<float>(i % 77) * 0.5f;
        expected[i] = a[i] + b[i];
    }
    selftest::DeviceArray<float> device_a(a), device_b(b), sum(count);
    add<<<(count + block - 1) / block, block>>>(device_a.get(), device_b.get(), sum.get(), count);
    selftest::check_launch("add");
    selftest::expect_equal(sum.to_host(), expected, "sum");
    return std::to_string(count) + " sums";
}

int main() { return selftest::run("vector_add", vector_add); }
