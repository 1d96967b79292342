#include "lockstep/evaluation/evaluate.h"

#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::evaluation {
namespace {

using Names = std::vector<std::string>;

/// What a batch of this rank gave.
struct Found {
  std::int64_t number = 0;
  Sums sums;
};

Names names_of(const Sums& sums) {
  Names names;
  for (const auto& [name, sum] : sums) names.push_back(name);
  return names;
}

// Collective: the text of rank 0.
std::string text_of_first(comm::Group& group, const std::string& text) {
  const at::Tensor size = at::zeros({1}, at::kLong);
  size.data_ptr<std::int64_t>()[0] = std::int64_t(text.size());
  group.broadcast(size);
  const at::Tensor bytes = at::zeros({size.data_ptr<std::int64_t>()[0]}, at::kByte);
  if (group.rank() == 0) std::copy(text.begin(), text.end(), bytes.data_ptr<std::uint8_t>());
  group.broadcast(bytes);
  return {bytes.data_ptr<std::uint8_t>(), bytes.data_ptr<std::uint8_t>() + bytes.numel()};
}

// Collective: the names that the first batch gave, which is rank 0's.
Names first_names(comm::Group& group, const std::vector<Found>& mine) {
  std::string text;
  if (group.rank() == 0)
    for (const std::string& name : names_of(mine.front().sums)) text += name + '\0';
  text = text_of_first(group, text);
  Names names;
  for (std::string_view rest = text; !rest.empty();) {
    names.emplace_back(rest.substr(0, rest.find('\0')));
    rest.remove_prefix(names.back().size() + 1);
  }
  return names;
}

// A row for each batch, with a column for each name, and a last one that is 1 where the names are others. Row k is
// filled by the rank that has batch k and zero elsewhere, so the sum over the ranks is exact.
at::Tensor table_of(const std::vector<Found>& mine, const Names& names, std::int64_t batches) {
  const at::Tensor table = at::zeros({batches, std::int64_t(names.size()) + 1}, at::kDouble);
  const std::int64_t columns = table.size(1);
  for (const Found& found : mine) {
    double* const row = table.data_ptr<double>() + found.number * columns;
    if (names_of(found.sums) != names) {
      row[columns - 1] = 1;
      continue;
    }
    std::transform(found.sums.begin(), found.sums.end(), row, [](const auto& sum) { return sum.second; });
  }
  return table;
}

void refuse_other_names(const at::Tensor& table, const Names& names, std::int64_t samples, std::int64_t batch_size) {
  const std::int64_t columns = table.size(1);
  for (std::int64_t batch = 0; batch < table.size(0); ++batch) {
    if (table.data_ptr<double>()[batch * columns + columns - 1] == 0) continue;
    const std::int64_t first = batch * batch_size, last = std::min(first + batch_size, samples) - 1;
    throw UsageError("evaluate: samples " + std::to_string(first) + " to " + std::to_string(last) +
                     " gave other sums than the first batch, which gave " + base::join(names) +
                     "; every batch must give the same names");
  }
}

}  // namespace

double Totals::mean(const std::string& name) const {
  const auto found = sums.find(name);
  if (found == sums.end()) throw UsageError("evaluate: " + base::unknown_name("sum", name, names_of(sums)));
  return found->second / double(samples);
}

Totals evaluate(torch::nn::Module& model, comm::Group& group, const std::shared_ptr<const data::Batches>& set,
                const SumsOf& sums_of, const PassOptions& options) {
  return evaluate_placed(
      model, group, set, [&](const PlacedBatch& placed) { return sums_of(placed.batch); }, options);
}

Totals evaluate_placed(torch::nn::Module& model, comm::Group& group, const std::shared_ptr<const data::Batches>& set,
                       const PlacedSumsOf& sums_of, const PassOptions& options) {
  std::vector<Found> mine;
  for_each_batch(model, group, set, options, [&](const PlacedBatch& placed) {
    mine.push_back({placed.number, sums_of(placed)});
  });
  const Names names = first_names(group, mine);
  if (names.empty()) throw UsageError("evaluate: the first batch gave no sums");
  Totals totals{.samples = set->size()};
  const at::Tensor table = table_of(mine, names, batches_of(totals.samples, options.batch_size));
  group.all_reduce(table);
  refuse_other_names(table, names, totals.samples, options.batch_size);
  for (std::int64_t batch = 0; batch < table.size(0); ++batch)
    for (std::size_t column = 0; column < names.size(); ++column)
      totals.sums[names[column]] += table.data_ptr<double>()[batch * table.size(1) + std::int64_t(column)];
  return totals;
}

Totals evaluate(parallel::Engine& ddp, const std::shared_ptr<const data::Batches>& set, const SumsOf& sums_of,
                const PassOptions& options) {
  ddp.begin_evaluation();
  return evaluate(ddp.module(), ddp.group(), set, sums_of, options);
}

}  // namespace lockstep::evaluation
