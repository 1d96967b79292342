#include "lockstep/train/number_input.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <charconv>
#include <cmath>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"
#include "lockstep/base/text.h"
#include "lockstep/data/readers/table.h"
#include "lockstep/data/sets/known_sets.h"
#include "lockstep/data/standardizer.h"
#include "lockstep/train/parts.h"

namespace lockstep::train {
namespace {

using data::Table;

// Names, or whole numbers: 1 is the first column, -1 the last.
std::vector<data::TableColumn> columns_named(const std::string& text) {
  std::vector<data::TableColumn> columns;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error == std::errc() && end == word.data() + word.size())
      columns.emplace_back(number);
    else
      columns.emplace_back(word);
  }
  return columns;
}

Table read_part(const Options& options, const std::string& path) {
  return data::read_table(path, {.columns = columns_named(options.columns),
                                 .labels = columns_named(options.target.empty() ? "-1" : options.target),
                                 .label_dtype = at::kFloat});
}

// A plane through 20 numbers in [0, 1), and a little noise; a function of the seed.
Table draw_line(std::int64_t seed, std::int64_t rows, std::uint32_t domain) {
  constexpr std::int64_t kFeatures = 20;
  constexpr std::uint32_t kPlane = 0x11;
  constexpr float kNoise = 0.05F;
  std::vector<float> slope(kFeatures);
  base::RandomStream plane(std::uint64_t(seed), kPlane, 0);
  for (float& weight : slope) weight = plane.between(-1, 1);
  Table table{.data = at::empty({rows, kFeatures}), .target = at::empty({rows, 1})};
  auto *x = table.data.mutable_data_ptr<float>(), *y = table.target.mutable_data_ptr<float>();
  for (std::int64_t row = 0; row < rows; ++row) {
    base::RandomStream random(std::uint64_t(seed), domain, std::uint64_t(row));
    float sum = 0.5F;
    for (std::int64_t i = 0; i < kFeatures; ++i) {
      *x = random.between(0, 1);
      sum = std::fma(slope[std::size_t(i)], *x++, sum);
    }
    *y++ = sum + random.between(-kNoise, kNoise);
  }
  return table;
}

struct Tables {
  Table train;
  std::optional<Table> test;
};

Tables split_rows(const Table& all, const Options& options) {
  std::vector<std::int64_t> kept, held;
  for (std::int64_t row = 0; row < all.data.size(0); ++row)
    (is_held_out(row, options.val_fraction) ? held : kept).push_back(row);
  if (kept.empty() || held.empty())
    throw UsageError("'" + options.data_path + "' has " + std::to_string(all.data.size(0)) +
                     " rows: --val-fraction leaves none to " + (held.empty() ? "evaluate" : "train") +
                     " on; another one, or --no-eval");
  const auto rows = [&all](std::vector<std::int64_t>& places) {
    const at::Tensor index = at::from_blob(places.data(), {std::int64_t(places.size())}, at::kLong);
    return Table{
        .data = all.data.index_select(0, index), .target = all.target.index_select(0, index), .columns = all.columns};
  };
  return {rows(kept), rows(held)};
}

Tables read_tables(const Options& options, bool evaluates) {
  if (is_one_file(options)) {
    if (options.train_split != Options().train_split || !options.val_split.empty())
      throw UsageError("--train-split and --val-split have no meaning for a single file, '" + options.data_path +
                       "': --val-fraction says how many rows are held out");
    Table all = read_part(options, options.data_path);
    return evaluates ? split_rows(all, options) : Tables{std::move(all), {}};
  }
  if (options.val_fraction != Options().val_fraction)
    throw UsageError("--val-fraction has no meaning for '" + options.data_path +
                     "', whose parts are files of their own: it is for a single file");
  Tables tables{read_part(options, train_part(options, ".csv")), {}};
  if (!evaluates) return tables;
  const std::string file = val_part(options, ".csv");
  tables.test = read_part(options, file);
  if (tables.test->columns != tables.train.columns || tables.test->data.size(1) != tables.train.data.size(1))
    throw UsageError("'" + file + "': its columns are " + base::join(tables.test->columns) + ", those to train on " +
                     base::join(tables.train.columns));
  return tables;
}

Tables tables_of(const Options& options, bool evaluates) {
  constexpr std::int64_t kTrain = 2048, kTest = 512;
  constexpr std::uint32_t kTrainDomain = 0x12, kTestDomain = 0x13;
  if (set_of(options).files == data::SetFiles::table) return read_tables(options, evaluates);
  return {draw_line(options.seed, kTrain, kTrainDomain), draw_line(options.seed, kTest, kTestDomain)};
}

void check_finite(const Table& table, const Options& options) {
  for (const auto& [numbers, what] : {std::pair(table.target, "a target"), std::pair(table.data, "an input")})
    if (!numbers.isfinite().all().item<bool>())
      throw UsageError("'" + options.data_path + "': " + what + " that is not finite (nan, inf) cannot be trained on");
}

std::string_view bytes_of(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

data::SetFingerprint print_of(const Table& table) {
  data::SetFingerprint print{.samples = table.data.size(0), .classes = data::hash_of(table.columns)};
  print.entries = data::hash_on(data::hash_on(0, bytes_of(table.data)), bytes_of(table.target));
  return print;
}

std::shared_ptr<const data::Batches> batches_of(const Table& table) {
  return data::tensors(table.data.view({table.data.size(0), 1, 1, table.data.size(1)}), table.target);
}

}  // namespace

bool is_held_out(std::int64_t row, double fraction) {
  return std::floor(double(row + 1) * fraction) > std::floor(double(row) * fraction);
}

Input make_number_input(const Options& options, bool evaluates) {
  Tables tables = tables_of(options, evaluates);
  check_finite(tables.train, options);
  if (evaluates) check_finite(*tables.test, options);
  Input input{
      .task = {.channels = 1, .height = 1, .width = tables.train.data.size(1), .classes = tables.train.target.size(1)},
      .train_set = print_of(tables.train)};
  if (evaluates) input.test_set = print_of(*tables.test);
  if (options.transforms == "standardize") {
    const data::Standardizer standard(tables.train.data);
    tables.train.data = standard(tables.train.data);
    if (evaluates) tables.test->data = standard(tables.test->data);
  }
  input.train = batches_of(tables.train);
  if (!evaluates) return input;
  input.test = batches_of(*tables.test);
  return input;
}

}  // namespace lockstep::train
