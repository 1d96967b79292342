#include "lockstep/checkpoint/store/kept_numbers.h"

#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::checkpoint {

std::vector<KeptNumber> place_of(const std::string& kept, const std::map<std::string, std::size_t>& offsets) {
  std::vector<KeptNumber> numbers;
  for (const auto& [name, offset] : offsets) numbers.push_back({name, kept, offset});
  return numbers;
}

void check_numbers(const std::vector<KeptNumber>& numbers, const std::map<std::string, std::size_t>& sizes) {
  for (const KeptNumber& number : numbers) {
    const auto found = sizes.find(number.kept);
    const std::string where = "checkpoint: place '" + base::shown(number.name) + "' ";
    if (found == sizes.end())
      throw UsageError(where + "is in the bytes '" + base::shown(number.kept) + "', which are not kept");
    const std::uint64_t size = found->second;
    if (size < sizeof(std::int64_t) || number.offset > size - sizeof(std::int64_t))
      throw UsageError(where + "begins at byte " + std::to_string(number.offset) + " of '" + base::shown(number.kept) +
                       "', which has " + std::to_string(size) + "; eight are needed");
  }
}

std::map<std::string, std::int64_t> numbers_in(const std::map<std::string, std::string>& kept,
                                               const std::vector<KeptNumber>& numbers) {
  std::map<std::string, std::size_t> sizes;
  for (const auto& [name, bytes] : kept) sizes.emplace(name, bytes.size());
  check_numbers(numbers, sizes);
  std::map<std::string, std::int64_t> found;
  for (const KeptNumber& number : numbers)
    std::memcpy(&found[number.name], kept.at(number.kept).data() + number.offset, sizeof(std::int64_t));
  return found;
}

}  // namespace lockstep::checkpoint
