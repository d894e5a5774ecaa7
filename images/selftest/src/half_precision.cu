// Half precision: packed multiply-add, comparison, and conversion in both directions.
#include <cuda_fp16.h>

#include "selftest.cuh"

__global__ void multiply_add(const __half2 *a, const __half2 *b, const __half2 *c, __half2 *fused,
                             float *larger, int pairs) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < pairs) {
        fused[i] = __hfma2(a[i], b[i], c[i]);
        larger[2 * i] = __half2float(__hgt(a[i].x, b[i].x) ? a[i].x : b[i].x);
        larger[2 * i + 1] = __half2float(__float2half(__half2float(a[i].y) + __half2float(b[i].y)));
    }
}

static std::vector<float> as_floats(const std::vector<__half2> &pairs) {
    std::vector<float> values;
    for (const __half2 &pair : pairs) {
        values.push_back(__low2float(pair));
        values.push_back(__high2float(pair));
    }
    return values;
}

static std::string half_precision() {
    const int pairs = 4099;
    const int block = 128;
    std::vector<__half2> a(pairs), b(pairs), c(pairs), fused(pairs);
    std::vector<float> larger(2 * pairs);
    for (int i = 0; i < pairs; ++i) {
        // Eighths up to 15.875: normal numbers whose product is exact in a double, and so is the sum.
        const double x[] = {i % 127 / 8.0, i % 113 / 8.0 - 7.0};
        const double y[] = {i % 101 / 8.0 - 6.0, i % 89 / 8.0};
        const double z[] = {i % 61 / 8.0, i % 53 / 8.0 - 3.0};
        a[i] = __floats2half2_rn(x[0], x[1]);
        b[i] = __floats2half2_rn(y[0], y[1]);
        c[i] = __floats2half2_rn(z[0], z[1]);
        fused[i] = __halves2half2(__double2half(x[0] * y[0] + z[0]), __double2half(x[1] * y[1] + z[1]));
        larger[2 * i] = static_cast<float>(x[0] > y[0] ? x[0] : y[0]);
        larger[2 * i + 1] = static_cast<float>(x[1] + y[1]);
    }
    const selftest::DeviceArray<__half2> device_a(a), device_b(b), device_c(c), device_fused(pairs);
    const selftest::DeviceArray<float> device_larger(2 * pairs);
    multiply_add<<<(pairs + block - 1) / block, block>>>(device_a.get(), device_b.get(), device_c.get(),
                                                         device_fused.get(), device_larger.get(), pairs);
    selftest::check_launch("multiply_add");
    selftest::expect_equal(as_floats(device_fused.to_host()), as_floats(fused), "multiply-add");
    selftest::expect_equal(device_larger.to_host(), larger, "comparison and conversion");
    return std::to_string(2 * pairs) + " multiply-adds";
}

int main() { return selftest::run("half_precision", half_precision); }
