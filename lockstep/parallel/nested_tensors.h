#pragma once

// The tensors in a value made of standard containers: tensors, std::optional, pair, tuple, array, vector and map of
// such, nested as deep as may be. Whatever else is in it has no tensors.

#include <ATen/core/Tensor.h>

#include <array>
#include <map>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::parallel {
namespace detail {

inline void add_tensors(std::vector<at::Tensor*>& found, at::Tensor& tensor) { found.push_back(&tensor); }

// Declared first, so that each knows the others.
template <class T>
void add_tensors(std::vector<at::Tensor*>&, T&) {}
template <class T>
void add_tensors(std::vector<at::Tensor*>& found, std::optional<T>& value);
template <class First, class Second>
void add_tensors(std::vector<at::Tensor*>& found, std::pair<First, Second>& value);
template <class... Ts>
void add_tensors(std::vector<at::Tensor*>& found, std::tuple<Ts...>& value);
template <class T, std::size_t N>
void add_tensors(std::vector<at::Tensor*>& found, std::array<T, N>& value);
template <class T>
void add_tensors(std::vector<at::Tensor*>& found, std::vector<T>& value);
template <class Key, class T>
void add_tensors(std::vector<at::Tensor*>& found, std::map<Key, T>& value);

template <class T>
void add_tensors(std::vector<at::Tensor*>& found, std::optional<T>& value) {
  if (value) add_tensors(found, *value);
}
template <class First, class Second>
void add_tensors(std::vector<at::Tensor*>& found, std::pair<First, Second>& value) {
  add_tensors(found, value.first);
  add_tensors(found, value.second);
}
template <class... Ts>
void add_tensors(std::vector<at::Tensor*>& found, std::tuple<Ts...>& value) {
  std::apply([&](Ts&... items) { (add_tensors(found, items), ...); }, value);
}
template <class T, std::size_t N>
void add_tensors(std::vector<at::Tensor*>& found, std::array<T, N>& value) {
  for (T& item : value) add_tensors(found, item);
}
template <class T>
void add_tensors(std::vector<at::Tensor*>& found, std::vector<T>& value) {
  if constexpr (!std::is_same_v<T, bool>)
    for (T& item : value) add_tensors(found, item);
}
template <class Key, class T>
void add_tensors(std::vector<at::Tensor*>& found, std::map<Key, T>& value) {
  for (auto& [key, item] : value) add_tensors(found, item);
}

}  // namespace detail

/// The defined and undefined tensors in `value`, in a fixed order; valid as long as it keeps its shape.
template <class T>
std::vector<at::Tensor*> tensors_in(T& value) {
  std::vector<at::Tensor*> found;
  detail::add_tensors(found, value);
  return found;
}

}  // namespace lockstep::parallel
