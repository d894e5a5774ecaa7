// Matrices for cuBLAS, column by column as it has them, of small whole numbers: every sum is exact
// in any precision that holds it, so the product has one right answer.
#pragma once

#include <cublas_v2.h>

#include "selftest.cuh"

namespace selftest {

inline void check(cublasStatus_t status, const char *call) {
    if (status != CUBLAS_STATUS_SUCCESS) {
        throw Failure(std::string(call) + ": " + cublasGetStatusString(status));
    }
}

#define CUBLAS(call) ::selftest::check((call), #call)

class Cublas {
public:
    Cublas() { CUBLAS(cublasCreate(&handle_)); }
    ~Cublas() { cublasDestroy(handle_); }
    Cublas(const Cublas &) = delete;
    Cublas &operator=(const Cublas &) = delete;
    operator cublasHandle_t() const { return handle_; }

private:
    cublasHandle_t handle_ = nullptr;
};

// The product C = A^T B: A is k x m, B is k x n, C is m x n. This is how llama.cpp multiplies.
struct Product {
    int m, n, k;
    std::vector<float> a, b, c;

    Product(int m, int n, int k) : m(m), n(n), k(k), a(k * m), b(k * n), c(m * n) {
        for (int i = 0; i < k * m; ++i) {
            a[i] = static_cast<float>(i * 7 % 5 - 2);
        }
        for (int i = 0; i < k * n; ++i) {
            b[i] = static_cast<float>(i * 11 % 3 - 1);
        }
        for (int column = 0; column < n; ++column) {
            for (int row = 0; row < m; ++row) {
                float sum = 0.0f;
                for (int i = 0; i < k; ++i) {
                    sum += a[row * k + i] * b[column * k + i];
                }
                c[column * m + row] = sum;
            }
        }
    }

    std::string shape() const {
        return std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k);
    }
};

}  // namespace selftest
