// A half precision matrix product through cuBLAS, by the call that llama.cpp makes.
#include <cuda_fp16.h>

#include "cublas.cuh"

static std::vector<__half> as_halves(const std::vector<float> &values) {
    std::vector<__half> halves;
    for (const float value : values) {
        halves.push_back(__float2half(value));
    }
    return halves;
}

static std::string half_gemm() {
    const selftest::Product product(192, 80, 144);
    const selftest::DeviceArray<__half> a(as_halves(product.a)), b(as_halves(product.b));
    const selftest::DeviceArray<__half> c(product.c.size());
    const __half one = __float2half(1.0f);
    const __half zero = __float2half(0.0f);
    const selftest::Cublas cublas;
    CUBLAS(cublasGemmEx(cublas, CUBLAS_OP_T, CUBLAS_OP_N, product.m, product.n, product.k, &one, a.get(),
                        CUDA_R_16F, product.k, b.get(), CUDA_R_16F, product.k, &zero, c.get(), CUDA_R_16F,
                        product.m, CUBLAS_COMPUTE_16F, CUBLAS_GEMM_DEFAULT));
    std::vector<float> found;
    for (const __half value : c.to_host()) {
        found.push_back(__half2float(value));
    }
    selftest::expect_equal(found, product.c, "product");
    return product.shape() + " product in half precision";
}

int main() { return selftest::run("half_gemm", half_gemm); }
