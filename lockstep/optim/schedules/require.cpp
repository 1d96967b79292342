#include "lockstep/optim/schedules/require.h"

#include <cmath>
#include <sstream>

#include "lockstep/base/error.h"

namespace lockstep::optim {

void require_option(bool fine, const char* schedule, const char* name, const std::string& value, const char* right) {
  if (!fine) throw UsageError(std::string(schedule) + ": " + name + " is " + value + ", must be " + right);
}

void require_option(bool fine, const char* schedule, const char* name, double value, const char* right) {
  if (fine) return;
  std::ostringstream text;
  text << value;
  require_option(false, schedule, name, std::isnan(value) ? "not given" : text.str(), right);
}

void require_option(bool fine, const char* schedule, const char* name, std::int64_t value, const char* right) {
  if (!fine) require_option(false, schedule, name, std::to_string(value), right);
}

bool is_amount(double value) { return std::isfinite(value) && value >= 0; }

}  // namespace lockstep::optim
