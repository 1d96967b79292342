#pragma once

// Numbers of a tensor's memory. Pure functions, thread-safe.

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep::checkpoint {

/// Whether a mean of numbers of the dtype is one again: of 16 to 64 bits with a fraction, real or complex.
bool has_means(const std::string& dtype);

/// How many real numbers `bytes` of the dtype are: two for each complex one.
std::size_t numbers_in(const std::string& dtype, std::uint64_t bytes);

/// Number i as a double, which is exact but for integers beyond 2^53.
double number_at(const std::string& dtype, const std::byte* data, std::size_t i);

/// Of a dtype that has_means(): rounded once, to the nearest.
void set_number(const std::string& dtype, std::byte* data, std::size_t i, double value);

/// |a - b| of number i of both, exact for integers where a double can be; not a number where one of both is none.
double distance_at(const std::string& dtype, const std::byte* a, const std::byte* b, std::size_t i);

}  // namespace lockstep::checkpoint
