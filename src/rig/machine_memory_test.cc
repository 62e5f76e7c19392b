#include "rig/machine_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/units.h"
#include "formats/scratch_dir.h"

namespace millrace::rig {
namespace {

using ::testing::HasSubstr;

// A machine of 16 GiB with 2 GiB in use.
class MachineMemoryTest : public ::testing::Test {
 protected:
  MachineMemoryTest() { SetCache(1 * kGiB); }

  void Write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = dir_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  // `cached` bytes of files beside what is in use; the kernel's own estimate moves with it.
  void SetCache(uint64_t cached) {
    const auto line = [](const char* name, uint64_t bytes) {
      return std::string(name) + ": " + std::to_string(bytes / kKiB) + " kB\n";
    };
    Write("proc/meminfo", line("MemTotal", 16 * kGiB) + line("MemFree", 14 * kGiB - cached) +
                              line("MemAvailable", 14 * kGiB - cached / 40) + line("Buffers", 0) +
                              line("Cached", cached + 256 * kMiB) + line("SReclaimable", 0) +
                              line("Shmem", 256 * kMiB));
  }
  MemoryBudget Read() const {
    const auto budget = ReadMachineMemory(dir_.path());
    EXPECT_TRUE(budget.ok());
    return *budget;
  }

  formats::ScratchDir dir_;
};

TEST_F(MachineMemoryTest, AHotFileCacheChangesNothing) {
  const uint64_t cold = Read().bytes;
  EXPECT_GT(cold, 13 * kGiB);
  EXPECT_LT(cold, 14 * kGiB);
  SetCache(12 * kGiB);
  EXPECT_EQ(Read().bytes, cold);
  EXPECT_TRUE(Read().of_machine);
}

TEST_F(MachineMemoryTest, TheTighterLimitOfAnyControlGroupCounts) {
  Write("proc/self/cgroup", "0::/system.slice/millrace.service\n");
  Write("sys/fs/cgroup/system.slice/memory.max", "6442450944\n");
  Write("sys/fs/cgroup/system.slice/memory.stat",
        "anon 1073741824\nfile 4294967296\nkernel 0\nshmem 0\nslab_reclaimable 0\n");
  Write("sys/fs/cgroup/system.slice/millrace.service/memory.max", "max\n");
  EXPECT_EQ(Read().bytes, 5 * kGiB);  // what the group holds of files can go
  EXPECT_THAT(Read().origin, HasSubstr("control group"));
  Write("sys/fs/cgroup/system.slice/millrace.service/memory.max", "2147483648\n");
  EXPECT_EQ(Read().bytes, 2 * kGiB);
}

// memory.stat of Linux 5.15: no line "kernel", which came with 5.18.
TEST_F(MachineMemoryTest, AnOlderKernelsGroupCountsWhatItsPartsHold) {
  Write("proc/self/cgroup", "0::/\n");
  Write("sys/fs/cgroup/memory.max", "6442450944\n");
  Write("sys/fs/cgroup/memory.stat",
        "anon 536870912\nfile 4294967296\nkernel_stack 67108864\npagetables 134217728\npercpu 67108864\n"
        "sock 134217728\nshmem 0\nfile_mapped 1073741824\nslab_reclaimable 2147483648\n"
        "slab_unreclaimable 134217728\nslab 2281701376\n");
  EXPECT_EQ(Read().bytes, 5 * kGiB);  // slabs that can be reclaimed count as free, like files
}

TEST_F(MachineMemoryTest, SlabsAboveTheKernelsSumDoNotWrap) {
  Write("proc/self/cgroup", "0::/\n");
  Write("sys/fs/cgroup/memory.max", "6442450944\n");
  // The lines are not read at one instant.
  Write("sys/fs/cgroup/memory.stat", "anon 0\nkernel 4096\nshmem 0\nslab_reclaimable 8192\n");
  EXPECT_EQ(Read().bytes, 6 * kGiB);
}

TEST_F(MachineMemoryTest, GroupsOfTheFirstVersionCountToo) {
  Write("proc/self/cgroup", "5:cpu,memory:/docker/1\n0::/elsewhere\n");
  Write("sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "4294967296\n");
  Write("sys/fs/cgroup/memory/docker/1/memory.stat", "total_rss 1073741824\ntotal_cache 1073741824\n");
  EXPECT_EQ(Read().bytes, 3 * kGiB);
}

TEST_F(MachineMemoryTest, AnUnlimitedGroupIsNoLimit) {
  const uint64_t without = Read().bytes;
  Write("proc/self/cgroup", "0::/\n");
  Write("sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(Read().bytes, without);
}

TEST(ReadMachineMemory, SaysWhatToGiveWhenThereIsNoTable) {
  const auto budget = ReadMachineMemory("/nonexistent");
  ASSERT_FALSE(budget.ok());
  EXPECT_THAT(budget.error().message(), HasSubstr("/nonexistent/proc/meminfo"));
  EXPECT_THAT(budget.error().message(), HasSubstr("--ram"));
}

TEST(ReadMachineMemory, ThisMachineHasSome) {
  const auto budget = ReadMachineMemory();
  ASSERT_TRUE(budget.ok());
  EXPECT_GT(budget->bytes, 0u);
  EXPECT_EQ(budget->bytes % (64 * kMiB), 0u);
}

}  // namespace
}  // namespace millrace::rig
