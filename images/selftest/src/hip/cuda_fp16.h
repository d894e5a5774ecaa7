// Half precision by HIP's header, and the one conversion that it has no name for.
#pragma once

#include <hip/hip_fp16.h>

inline __half __double2half(double value) { return __half(value); }
