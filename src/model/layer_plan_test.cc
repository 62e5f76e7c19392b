#include "model/layer_plan.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

namespace millrace::model {
namespace {

namespace fs = std::filesystem;

formats::ModelConfig Mini() {
  return *formats::ReadHfConfig(fs::path(MILLRACE_SOURCE_DIR) / "models/mini");
}

TEST(LayerPlan, RolesOfTheReleasedModel) {
  const fs::path spec = fs::path(MILLRACE_SHARED_DIR) / "spec/v41-config.json";
  if (!fs::exists(spec)) GTEST_SKIP() << "the released config is not here: " << spec;
  const Result<LayerPlan> plan = LayerPlan::Build(*formats::ReadHfConfig(spec));
  ASSERT_TRUE(plan.ok()) << plan.error().message();
  ASSERT_EQ(plan->layers.size(), 40u);
  EXPECT_EQ(plan->kv_sources, (std::vector<int>{2, 8, 14, 20}));
  const auto& layers = plan->layers;
  EXPECT_FALSE(layers[0].kv_source.has_value());
  EXPECT_EQ(layers[1].engram, 0);
  EXPECT_EQ(layers[14].engram, 1);
  EXPECT_TRUE(layers[2].owns_kv && layers[2].owns_index);
  EXPECT_EQ(layers[7].kv_source, 0);
  EXPECT_FALSE(layers[7].owns_index);
  EXPECT_EQ(layers[19].kv_source, 2);
  EXPECT_TRUE(layers[20].publishes_candidates && !layers[20].uses_candidates);
  EXPECT_EQ(layers[39].kv_source, 3);
  for (size_t l : {24u, 28u, 32u, 36u}) EXPECT_TRUE(layers[l].owns_index && layers[l].uses_candidates) << l;
  EXPECT_FALSE(layers[8].uses_candidates);
}

struct Fault {
  const char* name;
  std::function<void(formats::ModelConfig&)> apply;
  std::vector<std::string> said;  // what the message must name
};

class LayerPlanFault : public testing::TestWithParam<Fault> {};

TEST_P(LayerPlanFault, IsRefusedByNameAndValue) {
  formats::ModelConfig config = Mini();
  ASSERT_TRUE(LayerPlan::Build(config).ok());
  GetParam().apply(config);
  const Result<LayerPlan> plan = LayerPlan::Build(config);
  ASSERT_FALSE(plan.ok());
  for (const std::string& part : GetParam().said) {
    EXPECT_NE(plan.error().message().find(part), std::string::npos) << plan.error().message();
  }
}

using C = formats::ModelConfig;
INSTANTIATE_TEST_SUITE_P(
    Faults, LayerPlanFault,
    testing::Values(
        Fault{"hidden", [](C& c) { c.hidden_size = 100; }, {"hidden_size is 100", "multiple of 32"}},
        Fault{"groups", [](C& c) { c.o_groups = 3; }, {"num_attention_heads 4", "o_groups 3"}},
        Fault{"rope", [](C& c) { c.qk_rope_head_dim = 33; }, {"qk_rope_head_dim is 33"}},
        Fault{"scoring",
              [](C& c) { c.scoring_func = "softmax"; },
              {"scoring_func is 'softmax'", "'sqrtsoftplus'"}},
        Fault{
            "ratio", [](C& c) { c.compress_ratios[2] = 1; }, {"layer 2 has ratio 1", "layer 1, has ratio 2"}},
        Fault{"ratio3",
              [](C& c) { c.compress_ratios[1] = c.compress_ratios[2] = 3; },
              {"compress_ratios[1] is 3", "expected 0, 1 or 2"}},
        Fault{"no source", [](C& c) { c.compress_ratios[0] = 2; }, {"layer 0 has ratio 2 but no KV source"}},
        Fault{"source without entries",
              [](C& c) {
                c.kv_source_layer_ids = {0, 3};
              },
              {"kv_source_layer_ids names layer 0"}},
        Fault{"index of another source",
              [](C& c) {
                c.index_source_layer_ids = {1, 5}, c.candidate_source_layer_id = 5;
              },
              {"layer 3 reads KV source 3", "layer 1, selects in another"}},
        Fault{"candidates of another source",
              [](C& c) { c.candidate_source_layer_id = 1; },
              {"re-index layer 3", "layer 1, do not share"}},
        Fault{"candidate", [](C& c) { c.candidate_source_layer_id = 4; }, {"candidate_source_layer_id 4"}},
        Fault{"experts",
              [](C& c) { c.num_experts_per_tok = 9; },
              {"num_experts_per_tok is 9", "n_routed_experts 8"}},
        Fault{
            "two at once", [](C& c) { c.head_dim = 48, c.hc_mult = 9; }, {"head_dim is 48", "hc_mult is 9"}}),
    [](const auto& param) {
      std::string name = param.param.name;
      std::erase_if(name, [](char ch) { return ch == ' '; });
      return name;
    });

}  // namespace
}  // namespace millrace::model
