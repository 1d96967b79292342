#include "lockstep/evaluation/prediction_file.h"

#include <charconv>
#include <functional>
#include <set>

#include "lockstep/base/atomic_file.h"
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/safetensors.h"

namespace lockstep::evaluation {
namespace {

using Columns = std::vector<PredictionColumn>;
using Words = std::vector<std::string>;

const at::Tensor* numbers_of(const PredictionColumn& column) { return std::get_if<at::Tensor>(&column.cells); }

std::int64_t samples_in(const PredictionColumn& column) {
  const at::Tensor* numbers = numbers_of(column);
  if (numbers == nullptr) return std::int64_t(std::get<Words>(column.cells).size());
  if (!numbers->defined() || numbers->dim() < 1)
    throw UsageError("column '" + column.name + "' is no tensor with a row for each sample");
  return numbers->size(0);
}

std::int64_t samples_in(const Columns& columns) {
  if (columns.empty()) throw UsageError("no columns");
  const std::int64_t samples = samples_in(columns.front());
  std::set<std::string> names;
  for (const PredictionColumn& column : columns) {
    if (!names.insert(column.name).second) throw UsageError("column '" + column.name + "' twice");
    if (samples_in(column) != samples)
      throw UsageError("column '" + column.name + "' has " + std::to_string(samples_in(column)) + " samples, '" +
                       columns.front().name + "' has " + std::to_string(samples));
  }
  return samples;
}

// A field of a CSV file (RFC 4180).
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

template <class Number>
std::string shortest(Number number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof(text), number).ptr};
}

// A column of the file: its title, and the text of each sample's field.
struct Field {
  std::string title;
  std::function<std::string(std::int64_t sample)> text;
};

template <class Number>
std::function<std::string(std::int64_t)> text_of(const at::Tensor& numbers, at::ScalarType dtype) {
  return [dense = numbers.to(at::kCPU, dtype).contiguous()](std::int64_t sample) {
    return shortest(dense.const_data_ptr<Number>()[sample]);
  };
}

Field field_of(const std::string& title, const at::Tensor& numbers) {
  if (at::isIntegralType(numbers.scalar_type(), /*includeBool=*/true))
    return {title, text_of<std::int64_t>(numbers, at::kLong)};
  if (numbers.scalar_type() == at::kDouble) return {title, text_of<double>(numbers, at::kDouble)};
  return {title, text_of<float>(numbers, at::kFloat)};
}

void add_fields(const PredictionColumn& column, std::vector<Field>& fields) {
  const at::Tensor* numbers = numbers_of(column);
  if (numbers == nullptr) {
    const Words& words = std::get<Words>(column.cells);
    fields.push_back({column.name, [&words](std::int64_t sample) { return csv_field(words[std::size_t(sample)]); }});
    return;
  }
  if (numbers->dim() > 2 || numbers->is_complex())
    throw UsageError("column '" + column.name + "': real numbers [N] or [N, K] expected");
  if (numbers->dim() == 1) fields.push_back(field_of(column.name, *numbers));
  for (std::int64_t k = 0; numbers->dim() == 2 && k < numbers->size(1); ++k)
    fields.push_back(field_of(column.name + "_" + std::to_string(k), numbers->select(1, k)));
}

checkpoint::TensorMap tensors_of(const Columns& columns) {
  samples_in(columns);
  checkpoint::TensorMap tensors;
  for (const PredictionColumn& column : columns) {
    const at::Tensor* numbers = numbers_of(column);
    if (numbers == nullptr) throw UsageError("column '" + column.name + "' has words, which only a .csv takes");
    tensors[column.name] = *numbers;
  }
  return tensors;
}

bool is_csv(const std::string& path) {
  if (path.ends_with(".csv")) return true;
  if (path.ends_with(".safetensors")) return false;
  throw UsageError("'" + path + "': a name that ends in .csv or .safetensors expected");
}

void write_text(const std::string& path, const std::string& text) {
  base::AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

// What `make` makes of the columns; what is wrong with them names the file.
template <class Make>
auto content_of(const std::string& path, Make make) {
  try {
    return make();
  } catch (const UsageError& error) {
    throw UsageError("'" + path + "': " + error.what());
  }
}

}  // namespace

std::string predictions_csv(const Columns& columns) {
  const std::int64_t samples = samples_in(columns);
  std::vector<Field> fields = {{"sample", shortest<std::int64_t>}};
  for (const PredictionColumn& column : columns) add_fields(column, fields);
  std::string text;
  for (const Field& field : fields) text += (text.empty() ? "" : ",") + csv_field(field.title);
  text += "\n";
  for (std::int64_t sample = 0; sample < samples; ++sample)
    for (std::size_t i = 0; i < fields.size(); ++i)
      text += fields[i].text(sample) + (i + 1 < fields.size() ? "," : "\n");
  return text;
}

void write_predictions(const std::string& path, const Columns& columns, const comm::World& world) {
  if (world.rank() != 0) return;
  if (is_csv(path))
    write_text(path, content_of(path, [&] { return predictions_csv(columns); }));
  else
    checkpoint::write_safetensors(path, content_of(path, [&] { return tensors_of(columns); }));
}

// Opened aside, and dropped.
void check_prediction_file(const std::string& path, const comm::World& world) {
  if (world.rank() != 0) return;
  is_csv(path);
  const base::AtomicFile aside(path);
}

}  // namespace lockstep::evaluation
