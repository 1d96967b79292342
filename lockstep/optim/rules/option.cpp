#include "lockstep/optim/rules/option.h"

#include <cmath>
#include <sstream>

#include "lockstep/base/error.h"

namespace lockstep::optim {

void require(bool fine, const char* name, double value, const char* right) {
  if (fine) return;
  std::ostringstream text;
  text << "optimizer: " << name << " is " << value << ", must be " << right;
  throw UsageError(text.str());
}

void require_not_negative(const char* name, double value) {
  require(std::isfinite(value) && value >= 0, name, value, "finite and at least 0");
}

void require_fraction(const char* name, double value) { require(value >= 0 && value < 1, name, value, "in [0, 1)"); }

}  // namespace lockstep::optim
