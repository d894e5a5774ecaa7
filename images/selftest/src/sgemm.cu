// A single precision matrix product through cuBLAS.
#include "cublas.cuh"

static std::string sgemm() {
    const selftest::Product product(192, 80, 144);
    const selftest::DeviceArray<float> a(product.a), b(product.b), c(product.c.size());
    const float one = 1.0f;
    const float zero = 0.0f;
    const selftest::Cublas cublas;
    CUBLAS(cublasSgemm(cublas, CUBLAS_OP_T, CUBLAS_OP_N, product.m, product.n, product.k, &one, a.get(),
                       product.k, b.get(), product.k, &zero, c.get(), product.m));
    selftest::expect_equal(c.to_host(), product.c, "product");
    return product.shape() + " product in single precision";
}

int main() { return selftest::run("sgemm", sgemm); }
