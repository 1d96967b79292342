#include "lockstep/train/options_transforms.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/train/options.h"

namespace lockstep::train {
namespace {

constexpr int kLargestSide = 1 << 14;

[[noreturn]] void refuse_step(const std::string& step, const std::string& why) {
  throw UsageError("--transforms: '" + base::shown(step) + "': " + why);
}

std::vector<std::string> step_names() {
  std::vector<std::string> names;
  for (const StepKind& kind : step_kinds()) names.push_back(kind.name);
  return names;
}

const StepKind& kind_of(const std::string& name) {
  for (const StepKind& kind : step_kinds())
    if (kind.name == name) return kind;
  std::vector<std::string> names = step_names();
  names.insert(names.end(), transform_names().begin(), transform_names().end());
  throw UsageError("--transforms: " + base::unknown_name("step", name, names));
}

// The whole text, or false.
template <class T>
bool reads_as(const std::string& text, T& number) {
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && last == end && !text.empty();
}

void read_size(const std::string& step, const std::string& value, TransformStep& to) {
  const std::size_t cross = value.find('x');
  const bool both = cross != std::string::npos;
  const auto is_side = [](int side) { return side >= 1 && side <= kLargestSide; };
  if (!reads_as(value.substr(0, cross), to.height) || !is_side(to.height) ||
      (both && (!reads_as(value.substr(cross + 1), to.width) || !is_side(to.width))))
    refuse_step(step, "a size expected, as 224 or 200x300, from 1 to " + std::to_string(kLargestSide));
}

void read_number(const std::string& step, const std::string& value, double most, double& number) {
  if (!reads_as(value, number) || !(number >= 0 && number <= most))
    refuse_step(step, "a number from 0 to " + std::to_string(int(most)) + " expected");
}

void read_word(const std::string& step, const std::string& value, const std::vector<std::string>& words,
               std::string& word) {
  if (std::ranges::find(words, value) == words.end()) refuse_step(step, base::join(words, ", ") + " expected");
  word = value;
}

void read_value(const std::string& step, const std::string& value, TransformStep& to) {
  static const std::vector<std::string> policies(auto_augment_names().begin() + 1, auto_augment_names().end());
  switch (to.kind->value) {
    case StepValue::none:
      refuse_step(step, "it takes no value");
    case StepValue::size:
      return read_size(step, value, to);
    case StepValue::probability:
      return read_number(step, value, 1, to.number);
    case StepValue::degrees:
      return read_number(step, value, 180, to.number);
    case StepValue::policy:
      return read_word(step, value, policies, to.word);
    case StepValue::statistics:
      return read_word(step, value, {"imagenet", "cifar10", "mnist"}, to.word);
  }
}

TransformStep step_of(const std::string& text) {
  const std::size_t equals = text.find('=');
  TransformStep step{.kind = &kind_of(text.substr(0, equals)), .number = 0.5, .word = "imagenet"};
  const StepValue wanted = step.kind->value;
  if (equals != std::string::npos)
    read_value(text, text.substr(equals + 1), step);
  else if (wanted == StepValue::size || wanted == StepValue::degrees || wanted == StepValue::statistics)
    refuse_step(text, "a value expected, as " + step.kind->name + "=" +
                          (wanted == StepValue::size      ? "224"
                           : wanted == StepValue::degrees ? "15"
                                                          : "imagenet"));
  return step;
}

}  // namespace

const std::vector<StepKind>& step_kinds() {
  static const std::vector<StepKind> kinds = {{"resize", StepValue::size},
                                              {"center_crop", StepValue::size},
                                              {"random_crop", StepValue::size, true},
                                              {"random_resized_crop", StepValue::size, true},
                                              {"hflip", StepValue::probability, true},
                                              {"vflip", StepValue::probability, true},
                                              {"rotation", StepValue::degrees, true},
                                              {"auto_augment", StepValue::policy, true},
                                              {"to_tensor", StepValue::none},
                                              {"normalize", StepValue::statistics}};
  return kinds;
}

bool is_transform_list(const std::string& transforms) {
  return std::ranges::find(transform_names(), transforms) == transform_names().end();
}

bool is_interpolated(const TransformStep& step) {
  const std::string& name = step.kind->name;
  return name == "resize" || name == "random_resized_crop" || (name == "auto_augment" && step.word == "augmix");
}

std::vector<TransformStep> transform_steps(const std::string& list) {
  std::vector<TransformStep> steps;
  std::istringstream words(list + ",");
  bool is_tensor = false;
  for (std::string word; std::getline(words, word, ',');) {
    steps.push_back(step_of(word));
    const std::string& name = steps.back().kind->name;
    if (is_tensor && name != "normalize")
      refuse_step(word, "it stands behind " + steps.end()[-2].kind->name + ", and is for pictures");
    if (steps.size() > 1 && steps.end()[-2].kind->name == "normalize") refuse_step(word, "normalize stands last");
    is_tensor = is_tensor || name == "to_tensor" || name == "normalize";
  }
  return steps;
}

}  // namespace lockstep::train
