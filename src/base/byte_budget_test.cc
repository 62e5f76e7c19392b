#include "base/byte_budget.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

namespace millrace {
namespace {

TEST(ByteBudget, RefusesWhatIsAboveItsLimit) {
  const auto budget = ByteBudget::Create(100);
  const auto most = budget->Reserve(60);
  ASSERT_TRUE(most);
  EXPECT_FALSE(budget->Reserve(41));
  EXPECT_FALSE(budget->Reserve(SIZE_MAX));
  const auto rest = budget->Reserve(40);
  EXPECT_TRUE(rest);
  EXPECT_TRUE(budget->Reserve(0));
  EXPECT_EQ(budget->reserved_bytes(), 100u);
}

TEST(ByteBudget, GetsBackWhatAReservationHeldAtItsEnd) {
  const auto budget = ByteBudget::Create(100);
  {
    std::optional<ByteReservation> first = budget->Reserve(60);
    ByteReservation moved = *std::move(first);
    first.reset();
    EXPECT_EQ(budget->reserved_bytes(), 60u);
    ByteReservation other = *budget->Reserve(30);
    other = std::move(moved);
    EXPECT_EQ(budget->reserved_bytes(), 60u) << "what was assigned over is given back";
    other.ShrinkTo(70);
    EXPECT_EQ(other.bytes(), 60u);
    other.ShrinkTo(10);
    EXPECT_EQ(budget->reserved_bytes(), 10u);
  }
  EXPECT_EQ(budget->reserved_bytes(), 0u);
}

TEST(ByteBudget, IsOutlivedByItsReservations) {
  auto budget = ByteBudget::Create(100);
  std::optional<ByteReservation> reservation = budget->Reserve(60);
  budget.reset();
  EXPECT_EQ(reservation->bytes(), 60u);
  reservation.reset();
}

TEST(ByteBudget, ShowsWhatIsReservedInItsAccount) {
  MemoryLedger ledger;
  MemoryAccount& account = ledger.Open("bodies", 100);
  const auto budget = ByteBudget::Create(100);
  budget->SetAccount(account);
  {
    ByteReservation reserved = *budget->Reserve(70);
    EXPECT_FALSE(budget->Reserve(31));
    reserved.ShrinkTo(20);
    EXPECT_EQ(account.live_bytes(), 20u);
  }
  EXPECT_EQ(account.live_bytes(), 0u);
  EXPECT_EQ(account.peak_bytes(), 70u);
}

}  // namespace
}  // namespace millrace
