#pragma once

// How schedules refuse an option.

#include <cstdint>
#include <string>

namespace lockstep::optim {

/// UsageError "StepLR: step_size is 0, must be at least 1" unless `fine`; of a value that is not a number it says "is
/// not given" (kNotGiven).
void require_option(bool fine, const char* schedule, const char* name, double value, const char* right);
/// The same of a whole number, and of what is said in words.
void require_option(bool fine, const char* schedule, const char* name, std::int64_t value, const char* right);
void require_option(bool fine, const char* schedule, const char* name, const std::string& value, const char* right);

/// Whether a value is a number of a rate, a factor, a momentum: finite and at least 0.
bool is_amount(double value);

}  // namespace lockstep::optim
