// What every program here shares: device memory, errors, the one line of JSON and the exit code.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

namespace selftest {

// Exit codes. A program that dies some other way is reported by the script `selftest`.
constexpr int exit_ok = 0;
constexpr int exit_failed = 1;
constexpr int exit_no_device = 2;

// What a device is one of: hip/ makes HIP programs of these sources.
#ifdef __HIP__
constexpr const char *platform = "ROCm";
#else
constexpr const char *platform = "CUDA";
#endif

struct Failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};

inline void check(cudaError_t status, const char *call) {
    if (status != cudaSuccess) {
        throw Failure(std::string(call) + ": " + cudaGetErrorString(status));
    }
}

#define CUDA(call) ::selftest::check((call), #call)

// A kernel launch reports through the last error, what goes wrong while it runs through the next wait.
inline void check_launch(const char *kernel) { check(cudaGetLastError(), kernel); }

// An array in device memory. Copies wait for the work that was given to the default stream.
template <typename T>
class DeviceArray {
public:
    explicit DeviceArray(size_t count) : count_(count) {
        CUDA(cudaMalloc(reinterpret_cast<void **>(&data_), count * sizeof(T)));
    }
    explicit DeviceArray(const std::vector<T> &host) : DeviceArray(host.size()) {
        CUDA(cudaMemcpy(data_, host.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
    }
    ~DeviceArray() { (void)cudaFree(data_); }
    DeviceArray(const DeviceArray &) = delete;
    DeviceArray &operator=(const DeviceArray &) = delete;

    T *get() const { return data_; }
    size_t bytes() const { return count_ * sizeof(T); }

    std::vector<T> to_host() const {
        std::vector<T> host(count_);
        CUDA(cudaMemcpy(host.data(), data_, bytes(), cudaMemcpyDeviceToHost));
        return host;
    }

private:
    T *data_ = nullptr;
    size_t count_;
};

// Every check here compares exactly: the inputs are chosen so that no rounding can differ.
template <typename T>
void expect_equal(const std::vector<T> &found, const std::vector<T> &expected, const char *what) {
    for (size_t i = 0; i < expected.size(); ++i) {
        if (!(found[i] == expected[i])) {
            throw Failure(std::string(what) + "[" + std::to_string(i) + "] is " +
                          std::to_string(found[i]) + ", not " + std::to_string(expected[i]));
        }
    }
}

inline std::string quoted(const std::string &text) {
    std::string json = "\"";
    for (unsigned char c : text) {
        if (c == '"' || c == '\\') {
            json += '\\';
            json += static_cast<char>(c);
        } else if (c < 0x20) {
            char escape[7];
            std::snprintf(escape, sizeof escape, "\\u%04x", c);
            json += escape;
        } else {
            json += static_cast<char>(c);
        }
    }
    return json + '"';
}

inline int report(const char *test, int exit_code, const std::string &detail, const std::string &device) {
    std::printf("{\"test\": %s, \"ok\": %s, \"detail\": %s, \"device\": %s}\n", quoted(test).c_str(),
                exit_code == exit_ok ? "true" : "false", quoted(detail).c_str(),
                device.empty() ? "null" : quoted(device).c_str());
    return exit_code;
}

inline const char *why_none(cudaError_t found) {
    switch (found) {
    case cudaSuccess: return "the driver lists none";
#ifndef __HIP__
    // What libcudart also answers when there is no libcuda.so.1 at all.
    case cudaErrorInsufficientDriver: return "no libcuda.so.1 is found, or it is older than libcudart";
#endif
    default: return cudaGetErrorString(found);
    }
}

// Runs `body` on the first device. It returns what it showed, and throws Failure when that is wrong.
inline int run(const char *test, std::string (*body)()) {
    int devices = 0;
    const cudaError_t found = cudaGetDeviceCount(&devices);
    if (found != cudaSuccess || devices == 0) {
        const std::string none = std::string("no ") + platform + " device: ";
        return report(test, exit_no_device, none + why_none(found), "");
    }
    std::string device;
    try {
        cudaDeviceProp properties;
        CUDA(cudaGetDeviceProperties(&properties, 0));
        device = properties.name;
        const std::string detail = body();
        CUDA(cudaDeviceSynchronize());
        return report(test, exit_ok, detail, device);
    } catch (const std::exception &error) {
        return report(test, exit_failed, error.what(), device);
    }
}

}  // namespace selftest
