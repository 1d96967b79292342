#pragma once

// What the options of all optimizers are made of.

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>

namespace lockstep::optim {

/// A value that knows whether it was given: a parameter group takes what it was not given from the optimizer.
/// It is given when a value is assigned to it, `{.lr = 0.1}` included; a copy of an option is given where that was.
template <class T>
class Option {
 public:
  constexpr Option(T value) : value_(std::move(value)), given_(true) {}
  /// The elements of an array: `{.betas = {0.9, 0.95}}`.
  template <class... Parts>
  requires(sizeof...(Parts) > 1 && (std::convertible_to<Parts, double> && ...)) constexpr Option(Parts... parts)
      : value_{static_cast<typename T::value_type>(parts)...}, given_(true) {}

  constexpr operator const T&() const { return value_; }
  constexpr const T& operator*() const { return value_; }
  constexpr bool given() const { return given_; }

  /// `group.options.lr *= 0.1`, `options.betas[0]`.
  constexpr Option& operator*=(const T& factor) { return *this = value_ * factor; }
  constexpr Option& operator/=(const T& divisor) { return *this = value_ / divisor; }
  constexpr const auto& operator[](std::size_t i) const { return value_[i]; }

  /// A default: not given.
  static constexpr Option standard(T value) {
    Option made(std::move(value));
    made.given_ = false;
    return made;
  }

 private:
  T value_;
  bool given_;
};

template <class T>
constexpr Option<T> standard(T value) {
  return Option<T>::standard(std::move(value));
}

/// An option and its name; fields() of an options struct lists them.
template <class Options, class T>
struct Field {
  const char* name;
  Option<T> Options::*member;
};
template <class Options, class T>
Field(const char*, Option<T> Options::*) -> Field<Options, T>;  // clang before 17 does not deduce it for an aggregate

/// Calls visit(name, option) for each option, in the order of fields().
template <class Options, class Visit>
void for_each_option(Options& options, Visit&& visit) {
  std::apply([&](const auto&... field) { (visit(field.name, options.*field.member), ...); },
             std::remove_const_t<Options>::fields());
}

/// `group` with what it was not given taken from `defaults`.
template <class Options>
Options inherit(Options group, const Options& defaults) {
  const auto take = [&](const auto& field) {
    if (!(group.*field.member).given()) group.*field.member = defaults.*field.member;
  };
  std::apply([&](const auto&... field) { (take(field), ...); }, Options::fields());
  return group;
}

/// A hash of the values of all options, rounded to float32 as in most rules, that goes on from `hash`.
template <class Options>
std::uint64_t hash_of(const Options& options, std::uint64_t hash) {
  const auto add = [&](double value) {
    hash = (std::rotl(hash, 5) ^ std::bit_cast<std::uint32_t>(float(value))) * 0x9e3779b97f4a7c15ULL;
  };
  for_each_option(options, [&](const char*, const auto& option) {
    if constexpr (requires { double(*option); })
      add(double(*option));
    else
      for (const double part : *option) add(part);
  });
  return hash;
}

/// UsageError "optimizer: NAME is VALUE, must be RIGHT" unless `fine`.
void require(bool fine, const char* name, double value, const char* right);
/// The same of an option that is a finite number, at least 0.
void require_not_negative(const char* name, double value);
/// Of one that is in [0, 1).
void require_fraction(const char* name, double value);

/// The optimizer with these options (optimizer.h).
template <class Options>
class FusedOptimizer;

}  // namespace lockstep::optim
