#include "app/inspect_report.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "base/units.h"

namespace millrace::app {
namespace {

namespace json = boost::json;
using model::Category;
using model::CheckpointReport;
using model::Component;
using model::Inventory;
using model::Tally;

constexpr Component kAllComponents[] = {Component::kBackbone, Component::kDraft, Component::kVision};

Component ComponentOf(Category category) {
  switch (category) {
    case Category::kDraftExperts:
    case Category::kDraftOther:
      return Component::kDraft;
    case Category::kVision:
      return Component::kVision;
    default:
      return Component::kBackbone;
  }
}

struct TableRow {
  std::string_view component;
  std::string_view name;
  Tally tally;
  int indent = 0;  // a part of the row above that is indented less
};

Tally Sum(const Inventory& inventory, std::initializer_list<Category> categories) {
  Tally sum;
  for (const Category category : categories) {
    sum.tensors += inventory.Of(category).tensors;
    sum.bytes += inventory.Of(category).bytes;
  }
  return sum;
}

std::vector<TableRow> CategoryRows(const Inventory& inventory) {
  std::vector<TableRow> rows;
  const auto sum = [&](std::string_view name, std::initializer_list<Category> parts) {
    rows.push_back({model::ComponentName(Component::kBackbone), name, Sum(inventory, parts)});
    for (const Category part : parts)
      rows.push_back(
          {model::ComponentName(ComponentOf(part)), model::CategoryName(part), inventory.Of(part), 1});
  };
  const auto single = [&](Category category) {
    rows.push_back(
        {model::ComponentName(ComponentOf(category)), model::CategoryName(category), inventory.Of(category)});
  };
  sum("routed experts", {Category::kExpertWeights, Category::kExpertScales});
  sum("everything else in layers",
      {Category::kAttention, Category::kSharedExperts, Category::kGates, Category::kHyperConnections,
       Category::kIndexers, Category::kCompressors, Category::kLayerNorms});
  single(Category::kEmbedHeadNorm);
  single(Category::kEngramTables);
  single(Category::kEngramProjections);
  single(Category::kDraftExperts);
  single(Category::kDraftOther);
  single(Category::kVision);
  if (inventory.unlisted.tensors > 0) rows.push_back({"-", "not in the catalogue", inventory.unlisted});
  rows.push_back({"", "total", inventory.total});
  return rows;
}

// Bytes in one unit for a whole table: GiB, as the released figures are given, or MiB for small checkpoints.
struct SizeColumn {
  std::string_view unit;
  uint64_t unit_bytes;

  static SizeColumn For(uint64_t total) {
    return total >= kGiB ? SizeColumn{"GiB", kGiB} : SizeColumn{"MiB", kMiB};
  }
  std::string Of(uint64_t bytes) const {
    return fmt::format("{:.3f}", static_cast<double>(bytes) / static_cast<double>(unit_bytes));
  }
};

bool InConfig(const formats::ModelConfig& config, Component component) {
  if (component == Component::kDraft) return config.num_nextn_predict_layers > 0;
  if (component == Component::kVision) return config.vision_config.has_value();
  return true;
}

size_t CountOf(const CheckpointReport& report, Component component) {
  size_t count = 0;
  for (const model::Disagreement& disagreement : report.disagreements)
    if (disagreement.component == component) ++count;
  return count;
}

struct Verdict {
  std::string_view state;  // complete, incomplete, absent
  std::string_view meaning;
};

Verdict VerdictOn(const CheckpointReport& report, Component component) {
  const bool text = report.ComponentComplete(Component::kBackbone);
  if (report.ComponentComplete(component)) {
    if (component == Component::kBackbone) return {"complete", "the text model can be served"};
    if (!text) return {"complete", "but of no use without the text model"};
    return {"complete", component == Component::kDraft ? "drafting can be used" : "images can be read"};
  }
  if (CountOf(report, component) == 0 && !InConfig(report.config, component))
    return {"absent", component == Component::kDraft ? "config.json has no draft stages"
                                                     : "config.json has no vision_config"};
  if (component == Component::kBackbone) return {"incomplete", "the checkpoint is refused"};
  if (component == Component::kDraft)
    return {"incomplete", text ? "drafting is refused; the text model can be served" : "drafting is refused"};
  return {"incomplete", text ? "images are refused; the text model can be served" : "images are refused"};
}

std::string TextOfReport(const CheckpointReport& report) {
  std::string out = "\ncomponent  state       disagreements\n";
  for (const Component component : kAllComponents) {
    const Verdict verdict = VerdictOn(report, component);
    out += fmt::format("{:<9}  {:<10}  {:>13}  {}\n", model::ComponentName(component), verdict.state,
                       WithThousands(CountOf(report, component)), verdict.meaning);
  }
  if (report.disagreements.empty()) return out + "\nnothing disagrees\n";
  out += fmt::format("\n{} disagreement{}; config.json asks for {} tensors, {} bytes\n",
                     WithThousands(report.disagreements.size()), report.disagreements.size() == 1 ? "" : "s",
                     WithThousands(report.config_tensors), WithThousands(report.config_bytes));
  for (const model::Disagreement& disagreement : report.disagreements)
    out += fmt::format("{}: {}\n", model::ComponentName(disagreement.component), disagreement.Text());
  return out;
}

json::object JsonOf(const Tally& tally) {
  return {{"tensors", tally.tensors}, {"bytes", tally.bytes}};
}

json::array JsonOfCategories(const Inventory& inventory) {
  json::array out;
  for (int i = 0; i < model::kCategories; ++i) {
    const auto category = static_cast<Category>(i);
    json::object row = JsonOf(inventory.Of(category));
    row["component"] = model::ComponentName(ComponentOf(category));
    row["category"] = model::CategoryName(category);
    out.push_back(std::move(row));
  }
  return out;
}

void AddReport(const CheckpointReport& report, json::object& out) {
  json::array components;
  for (const Component component : kAllComponents) {
    const Verdict verdict = VerdictOn(report, component);
    components.push_back({{"component", model::ComponentName(component)},
                          {"state", verdict.state},
                          {"meaning", verdict.meaning},
                          {"disagreements", CountOf(report, component)}});
  }
  json::array disagreements;
  for (const model::Disagreement& d : report.disagreements)
    disagreements.push_back({{"component", model::ComponentName(d.component)},
                             {"file", d.file},
                             {"tensor", d.tensor},
                             {"found", d.found},
                             {"expected", d.expected}});
  out["expected"] = {{"tensors", report.config_tensors}, {"bytes", report.config_bytes}};
  out["components"] = std::move(components);
  out["disagreements"] = std::move(disagreements);
}

}  // namespace

std::string InspectText(const InspectSubject& subject) {
  const Inventory& inventory = subject.inventory;
  const SizeColumn size = SizeColumn::For(inventory.total.bytes);
  std::string out = fmt::format("{}  {}\ntensors  {}\nbytes  {} ({})\n\n",
                                subject.report != nullptr ? "checkpoint" : "config", subject.path,
                                WithThousands(inventory.total.tensors), WithThousands(inventory.total.bytes),
                                HumanBytes(inventory.total.bytes));
  out += fmt::format("{:<9}  {:<33}  {:>7}  {:>15}  {:>8}\n", "component", "category", "tensors", "bytes",
                     "GiB");
  for (const TableRow& row : CategoryRows(inventory))
    out += fmt::format("{:<9}  {:<33}  {:>7}  {:>15}  {:>8}\n", row.component,
                       std::string(static_cast<size_t>(row.indent) * 2, ' ').append(row.name),
                       WithThousands(row.tally.tensors), WithThousands(row.tally.bytes),
                       size.Of(row.tally.bytes));
  out += fmt::format("\n{:<44}  {:>7}  {:>15}  {:>8}\n", "type", "tensors", "bytes", size.unit);
  for (const auto& [dtype, tally] : inventory.by_dtype)
    out += fmt::format("{:<44}  {:>7}  {:>15}  {:>8}\n", formats::DTypeName(dtype),
                       WithThousands(tally.tensors), WithThousands(tally.bytes), size.Of(tally.bytes));
  if (subject.report != nullptr) out += TextOfReport(*subject.report);
  return out;
}

std::string InspectJson(const InspectSubject& subject) {
  json::object out;
  out[subject.report != nullptr ? "checkpoint" : "config"] = subject.path;
  out["tensors"] = subject.inventory.total.tensors;
  out["bytes"] = subject.inventory.total.bytes;
  out["categories"] = JsonOfCategories(subject.inventory);
  out["not_in_catalogue"] = JsonOf(subject.inventory.unlisted);
  json::array types;
  for (const auto& [dtype, tally] : subject.inventory.by_dtype) {
    json::object row = JsonOf(tally);
    row["type"] = formats::DTypeName(dtype);
    types.push_back(std::move(row));
  }
  out["types"] = std::move(types);
  if (subject.report != nullptr) AddReport(*subject.report, out);
  return json::serialize(out) + "\n";
}

}  // namespace millrace::app
