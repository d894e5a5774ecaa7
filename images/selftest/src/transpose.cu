// A transpose through tiles in shared memory, of a matrix whose sides are no multiples of a tile's.
#include "selftest.cuh"

constexpr int tile = 32;
constexpr int rows_per_pass = 8;

__global__ void transpose(const float *in, float *out, int width, int height) {
    __shared__ float cells[tile][tile + 1];
    int x = blockIdx.x * tile + threadIdx.x;
    int y = blockIdx.y * tile + threadIdx.y;
    for (int pass = 0; pass < tile; pass += rows_per_pass) {
        if (x < width && y + pass < height) {
            cells[threadIdx.y + pass][threadIdx.x] = in[(y + pass) * width + x];
        }
    }
    __syncthreads();
    x = blockIdx.y * tile + threadIdx.x;
    y = blockIdx.x * tile + threadIdx.y;
    for (int pass = 0; pass < tile; pass += rows_per_pass) {
        if (x < height && y + pass < width) {
            out[(y + pass) * height + x] = cells[threadIdx.x][threadIdx.y + pass];
        }
    }
}

static std::string transposed() {
    const int width = 1000;
    const int height = 770;
    std::vector<float> matrix(width * height), expected(width * height);
    for (int y = 0; y < height; ++y) {
        for (int x = 0; x < width; ++x) {
            matrix[y * width + x] = static_cast<float>(y * width + x);
            expected[x * height + y] = matrix[y * width + x];
        }
    }
    const selftest::DeviceArray<float> in(matrix), out(matrix.size());
    const dim3 grid((width + tile - 1) / tile, (height + tile - 1) / tile);
    transpose<<<grid, dim3(tile, rows_per_pass)>>>(in.get(), out.get(), width, height);
    selftest::check_launch("transpose");
    selftest::expect_equal(out.to_host(), expected, "cell");
    return std::to_string(width) + " x " + std::to_string(height) + " matrix through shared memory";
}

int main() { return selftest::run("transpose", transposed); }
