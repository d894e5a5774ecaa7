// cuBLAS's names that the programs use, by hipBLAS's.
#pragma once

#define HIPBLAS_V2  // types of computation as cuBLAS has them; hipBLAS 3 has no others
#include <hipblas/hipblas.h>

#define CUBLAS_COMPUTE_16F HIPBLAS_COMPUTE_16F
#define CUBLAS_GEMM_DEFAULT HIPBLAS_GEMM_DEFAULT
#define CUBLAS_OP_N HIPBLAS_OP_N
#define CUBLAS_OP_T HIPBLAS_OP_T
#define CUBLAS_STATUS_SUCCESS HIPBLAS_STATUS_SUCCESS
#define CUDA_R_16F HIP_R_16F
#define cublasCreate hipblasCreate
#define cublasDestroy hipblasDestroy
#define cublasGemmEx hipblasGemmEx
#define cublasGetStatusString hipblasStatusToString
#define cublasHandle_t hipblasHandle_t
#define cublasSgemm hipblasSgemm
#define cublasStatus_t hipblasStatus_t
