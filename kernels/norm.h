// The sum of squares of a root mean square norm.
#pragma once

#include <cstdint>

namespace jan_serve {

// Adds to COUNT sums in turn: a single sum waits for each addition.
inline double sum_of_squares(const float * values, int64_t count) {
    constexpr int COUNT       = 32;
    double        sums[COUNT] = {};
    int64_t       i           = 0;
    for (; i + COUNT <= count; i += COUNT) {
        for (int j = 0; j < COUNT; j++) {
            sums[j] += (double) (values[i + j] * values[i + j]);
        }
    }
    double sum = 0;
    for (double part : sums) {
        sum += part;
    }
    for (; i < count; i++) {
        sum += (double) (values[i] * values[i]);
    }
    return sum;
}

}  // namespace jan_serve
