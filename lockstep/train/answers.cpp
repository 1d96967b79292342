#include "lockstep/train/answers.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <string>

#include "lockstep/train/checked_labels.h"

namespace lockstep::train {
namespace {

constexpr std::int64_t kColumns = 4;  // of a mistake, as numbers: a double counts samples exactly

void keep_surest(std::vector<WrongAnswer>& mistakes) {
  std::ranges::sort(mistakes, [](const WrongAnswer& a, const WrongAnswer& b) {
    return a.share != b.share ? a.share > b.share : a.sample < b.sample;
  });
  if (mistakes.size() > kMostMistakes) mistakes.resize(kMostMistakes);
}

at::Tensor rows_of(const std::vector<WrongAnswer>& mistakes) {
  const at::Tensor rows = at::full({std::int64_t(kMostMistakes), kColumns}, -1.0, at::kDouble);
  double* at = rows.mutable_data_ptr<double>();
  for (const WrongAnswer& mistake : mistakes)
    for (const double number :
         {double(mistake.sample), double(mistake.truth), double(mistake.prediction), mistake.share})
      *at++ = number;
  return rows;
}

}  // namespace

void AnswerCount::add(const at::Tensor& logits, const at::Tensor& target, std::int64_t first) {
  // Of the logits, as top1 is: shares may round to equal ones.
  const at::Tensor truths = target.contiguous(), guesses = logits.argmax(1);
  const at::Tensor sure = logits.to(at::kFloat).softmax(1).gather(1, guesses.unsqueeze(1)).contiguous();
  for (std::int64_t i = 0; i < truths.size(0); ++i) {
    const std::int64_t truth = truths.const_data_ptr<std::int64_t>()[i];
    check_label(truth, logits.size(1), first + i, "evaluate");  // it is a place in the counts of of_all()
    const std::int64_t prediction = guesses.const_data_ptr<std::int64_t>()[i];
    cells_.push_back({truth, prediction});
    const float share = sure.const_data_ptr<float>()[i];
    // Logits that are no numbers give a share that is none, and no order.
    if (truth != prediction && share == share) mistakes_.push_back({first + i, truth, prediction, share, "", ""});
  }
  keep_surest(mistakes_);
}

Answers AnswerCount::of_all(comm::Group& group, std::int64_t classes) const {
  Answers all;
  for (std::int64_t number = 0; number < classes; ++number) all.classes.push_back(std::to_string(number));
  const at::Tensor by_class = at::zeros({2, classes}, at::kLong);  // samples, and right ones
  std::int64_t* const samples = by_class.mutable_data_ptr<std::int64_t>();
  std::int64_t* const right = samples + classes;
  for (const Cell& cell : cells_) {
    ++samples[cell.truth];
    right[cell.truth] += cell.truth == cell.prediction;
  }
  group.all_reduce(by_class);
  all.samples.assign(samples, right);
  all.right.assign(right, right + classes);
  if (classes <= kMostInMatrix) {
    const at::Tensor counts = at::zeros({classes * classes}, at::kLong);
    for (const Cell& cell : cells_) ++counts.mutable_data_ptr<std::int64_t>()[cell.truth * classes + cell.prediction];
    group.all_reduce(counts);
    all.confusion.assign(counts.const_data_ptr<std::int64_t>(), counts.const_data_ptr<std::int64_t>() + counts.numel());
  }
  for (const at::Tensor& rows : group.all_gather(rows_of(mistakes_))) {
    const double* row = rows.const_data_ptr<double>();
    for (std::size_t i = 0; i < kMostMistakes; ++i, row += kColumns)
      if (row[0] >= 0)
        all.mistakes.push_back({std::int64_t(row[0]), std::int64_t(row[1]), std::int64_t(row[2]), row[3], "", ""});
  }
  keep_surest(all.mistakes);
  return all;
}

}  // namespace lockstep::train
