// What the collectives compute, against a serial computation on the host.
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include "softgpu/driver/memory_testing.h"
#include "softgpu/nccl/nccl_testing.h"

namespace softgpu {

const std::vector<std::string> kDaemonOptions = {"--gpus", "8", "--memory", "256MiB"};

namespace nccl {
namespace {

using Values = std::vector<std::vector<double>>;  // by rank

constexpr ncclDataType_t kAllTypes[] = {ncclInt8,    ncclUint8,    ncclInt32,      ncclUint32,
                                        ncclInt64,   ncclUint64,   ncclFloat16,    ncclFloat32,
                                        ncclFloat64, ncclBfloat16, ncclFloat8e4m3, ncclFloat8e5m2};
constexpr ncclRedOp_t kAllOps[] = {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg};

bool IsInteger(ncclDataType_t type) { return type <= ncclUint64; }
bool IsUnsigned(ncclDataType_t type) { return type == ncclUint8 || type == ncclUint32 || type == ncclUint64; }

// Small numbers, exact in every type, different for every rank and place.
double Value(ncclDataType_t type, ncclRedOp_t op, int rank, size_t i) {
  const auto mixed = static_cast<unsigned>((static_cast<size_t>(rank) * 7 + i * 5 + i / 3) % 11);
  if (op == ncclProd) return mixed % 4 == 0 ? 2 : mixed % 4 == 1 && !IsUnsigned(type) ? -1 : 1;
  return IsUnsigned(type) ? mixed % 4 : static_cast<double>(mixed % 5) - 2;
}

Values Inputs(ncclDataType_t type, ncclRedOp_t op, int ranks, size_t count) {
  Values values(static_cast<size_t>(ranks), std::vector<double>(count));
  for (int rank = 0; rank < ranks; rank++) {
    for (size_t i = 0; i < count; i++) values[rank][i] = Value(type, op, rank, i);
  }
  return values;
}

// Element by element, one rank after the other.
double Serial(ncclDataType_t type, ncclRedOp_t op, const Values& values, size_t i) {
  double sum = values[0][i];
  for (size_t rank = 1; rank < values.size(); rank++) {
    const double value = values[rank][i];
    sum = op == ncclProd  ? sum * value
          : op == ncclMax ? std::max(sum, value)
          : op == ncclMin ? std::min(sum, value)
                          : sum + value;
  }
  if (op == ncclAvg) sum /= static_cast<double>(values.size());
  return IsInteger(type) ? std::trunc(sum) : sum;
}

std::vector<uint8_t> Encoded(ncclDataType_t type, const std::vector<double>& values) {
  std::vector<uint8_t> bytes(values.size() * Bytes(type));
  for (size_t i = 0; i < values.size(); i++) Encode(type, values[i], bytes.data() + i * Bytes(type));
  return bytes;
}

std::vector<uint8_t> SerialBytes(ncclDataType_t type, ncclRedOp_t op, const Values& values, size_t first,
                                 size_t count) {
  std::vector<double> result(count);
  for (size_t i = 0; i < count; i++) result[i] = Serial(type, op, values, first + i);
  return Encoded(type, result);
}

std::vector<Buffer> MakeBuffers(ncclDataType_t type, const Values& values) {
  std::vector<Buffer> buffers;
  for (size_t rank = 0; rank < values.size(); rank++)
    buffers.emplace_back(static_cast<int>(rank), Encoded(type, values[rank]));
  return buffers;
}
std::vector<Buffer> EmptyBuffers(int ranks, size_t bytes) {
  std::vector<Buffer> buffers;
  for (int rank = 0; rank < ranks; rank++) buffers.emplace_back(rank, bytes, 0xAA);
  return buffers;
}

void TestAllReduce(const Ranks& ranks, ncclDataType_t type, ncclRedOp_t op, size_t count, bool in_place) {
  SCOPED_TRACE(testing::Message() << ranks.count() << " ranks, type " << type << ", op " << op << ", "
                                  << count << (in_place ? " in place" : ""));
  const Values values = Inputs(type, op, ranks.count(), count);
  const std::vector<Buffer> send = MakeBuffers(type, values),
                            receive = EmptyBuffers(ranks.count(), count * Bytes(type));
  ranks.Group([&](int rank) {
    return ncclAllReduce(send[rank].at(), in_place ? send[rank].at() : receive[rank].at(), count, type, op,
                         ranks.comms[rank], ranks.streams[rank].get());
  });
  ranks.Wait();
  const std::vector<uint8_t> expected = SerialBytes(type, op, values, 0, count);
  for (int rank = 0; rank < ranks.count(); rank++) {
    ASSERT_EQ((in_place ? send : receive)[rank].Bytes(), expected) << "rank " << rank;
    if (in_place) continue;
    ASSERT_EQ(send[rank].Bytes(), Encoded(type, values[rank])) << "rank " << rank;
  }
}

TEST(Collectives, AllReduceOfAllTypesAndOperations) {
  const Ranks ranks(3);
  for (ncclDataType_t type : kAllTypes) {
    for (ncclRedOp_t op : kAllOps) {
      TestAllReduce(ranks, type, op, 37, false);
      TestAllReduce(ranks, type, op, 1000, true);
    }
  }
}

TEST(Collectives, AllReduceOfAllSizesFromOneToEightRanks) {
  for (int count = 1; count <= 8; count++) {
    const Ranks ranks(count);
    for (size_t size : {0, 1, 7, 64, 4099}) {
      TestAllReduce(ranks, ncclFloat32, ncclSum, size, false);
      TestAllReduce(ranks, ncclInt64, ncclMax, size, true);
      TestAllReduce(ranks, ncclBfloat16, ncclAvg, size, true);
    }
  }
}

// More than the rings and the staging memory hold.
TEST(Collectives, LargeAllReduce) {
  const Ranks ranks(3);
  TestAllReduce(ranks, ncclFloat32, ncclSum, 5'000'001, true);
  TestAllReduce(ranks, ncclUint8, ncclSum, 10'000'003, false);
}

void TestReduceScatter(const Ranks& ranks, ncclDataType_t type, ncclRedOp_t op, size_t count, bool in_place) {
  SCOPED_TRACE(testing::Message() << ranks.count() << " ranks, type " << type << ", op " << op << ", "
                                  << count);
  const size_t bytes = count * Bytes(type);
  const Values values = Inputs(type, op, ranks.count(), count * static_cast<size_t>(ranks.count()));
  const std::vector<Buffer> send = MakeBuffers(type, values), receive = EmptyBuffers(ranks.count(), bytes);
  ranks.Group([&](int rank) {
    void* to = in_place ? send[rank].at(static_cast<size_t>(rank) * bytes) : receive[rank].at();
    return ncclReduceScatter(send[rank].at(), to, count, type, op, ranks.comms[rank],
                             ranks.streams[rank].get());
  });
  ranks.Wait();
  for (int rank = 0; rank < ranks.count(); rank++) {
    const size_t own = static_cast<size_t>(rank) * count;
    std::vector<uint8_t> got = (in_place ? send : receive)[rank].Bytes();
    if (in_place)
      got = std::vector<uint8_t>(got.begin() + static_cast<long>(own * Bytes(type)),
                                 got.begin() + static_cast<long>(own * Bytes(type) + bytes));
    ASSERT_EQ(got, SerialBytes(type, op, values, own, count)) << "rank " << rank;
  }
}

TEST(Collectives, ReduceScatter) {
  for (int count = 1; count <= 8; count++) {
    const Ranks ranks(count);
    for (size_t size : {0, 1, 33, 5001}) {
      TestReduceScatter(ranks, ncclFloat32, ncclSum, size, false);
      TestReduceScatter(ranks, ncclInt32, ncclMin, size, true);
    }
  }
  const Ranks ranks(2);
  for (ncclDataType_t type : kAllTypes) {
    for (ncclRedOp_t op : kAllOps) TestReduceScatter(ranks, type, op, 19, type % 2 == 0);
  }
  TestReduceScatter(ranks, ncclFloat64, ncclSum, 1'000'001, true);
}

void TestReduce(const Ranks& ranks, ncclDataType_t type, ncclRedOp_t op, size_t count, int root,
                bool in_place) {
  SCOPED_TRACE(testing::Message() << ranks.count() << " ranks, type " << type << ", op " << op << ", "
                                  << count);
  const Values values = Inputs(type, op, ranks.count(), count);
  const std::vector<Buffer> send = MakeBuffers(type, values),
                            receive = EmptyBuffers(ranks.count(), count * Bytes(type));
  ranks.Group([&](int rank) {
    // Only the root's receive buffer counts.
    void* to = rank != root ? nullptr : in_place ? send[rank].at() : receive[rank].at();
    return ncclReduce(send[rank].at(), to, count, type, op, root, ranks.comms[rank],
                      ranks.streams[rank].get());
  });
  ranks.Wait();
  for (int rank = 0; rank < ranks.count(); rank++) {
    const std::vector<uint8_t> expected =
        rank == root && in_place ? SerialBytes(type, op, values, 0, count) : Encoded(type, values[rank]);
    ASSERT_EQ(send[rank].Bytes(), expected) << "rank " << rank;
  }
  if (in_place) return;
  ASSERT_EQ(receive[root].Bytes(), SerialBytes(type, op, values, 0, count));
}

TEST(Collectives, Reduce) {
  for (int count = 1; count <= 8; count++) {
    const Ranks ranks(count);
    for (size_t size : {0, 1, 33, 5001}) {
      TestReduce(ranks, ncclFloat16, ncclSum, size, count - 1, false);
      TestReduce(ranks, ncclUint64, ncclProd, size, 0, true);
    }
  }
  const Ranks ranks(2);
  for (ncclDataType_t type : kAllTypes) {
    for (ncclRedOp_t op : kAllOps) TestReduce(ranks, type, op, 19, type % 2, type % 3 == 0);
  }
}

// A number that tells rank and place apart.
std::vector<uint32_t> Marked(int rank, size_t count) {
  std::vector<uint32_t> values(count);
  for (size_t i = 0; i < count; i++)
    values[i] = static_cast<uint32_t>(rank) << 24 | static_cast<uint32_t>(i & 0xffffff);
  return values;
}
std::vector<Buffer> MarkedBuffers(int ranks, size_t count) {
  std::vector<Buffer> buffers;
  for (int rank = 0; rank < ranks; rank++) buffers.push_back(MakeBuffer(rank, Marked(rank, count)));
  return buffers;
}

class Moves : public testing::TestWithParam<int> {
 protected:
  Moves() : ranks_(GetParam()), n_(static_cast<size_t>(GetParam())) {}
  ncclComm_t comm(int rank) const { return ranks_.comms[rank]; }
  cudaStream_t stream(int rank) const { return ranks_.streams[rank].get(); }

  const Ranks ranks_;
  const size_t n_;
};

constexpr size_t kSizes[] = {0, 1, 35, 50'001};

TEST_P(Moves, Broadcast) {
  for (size_t count : kSizes) {
    const int root = ranks_.count() / 2;
    const auto send = MarkedBuffers(ranks_.count(), count), receive = EmptyBuffers(ranks_.count(), count * 4);
    ranks_.Group([&](int rank) {
      return ncclBroadcast(rank == root ? send[rank].at() : nullptr, receive[rank].at(), count, ncclUint32,
                           root, comm(rank), stream(rank));
    });
    // In place, from another root, behind the first.
    ranks_.Group(
        [&](int rank) { return ncclBcast(send[rank].at(), count, ncclUint32, 0, comm(rank), stream(rank)); });
    ranks_.Wait();
    for (int rank = 0; rank < ranks_.count(); rank++) {
      ASSERT_EQ(receive[rank].As<uint32_t>(), Marked(root, count)) << rank;
      ASSERT_EQ(send[rank].As<uint32_t>(), Marked(0, count)) << rank;
    }
  }
}

TEST_P(Moves, AllGather) {
  for (size_t count : kSizes) {
    const auto send = MarkedBuffers(ranks_.count(), count),
               receive = EmptyBuffers(ranks_.count(), n_ * count * 4);
    const auto own = MarkedBuffers(ranks_.count(), n_ * count);
    ranks_.Group([&](int rank) {
      return ncclAllGather(send[rank].at(), receive[rank].at(), count, ncclUint32, comm(rank), stream(rank));
    });
    ranks_.Group([&](int rank) {
      void* in_place = own[rank].at(static_cast<size_t>(rank) * count * 4);
      return ncclAllGather(in_place, own[rank].at(), count, ncclUint32, comm(rank), stream(rank));
    });
    ranks_.Wait();
    std::vector<uint32_t> expected, expected_own;
    for (int rank = 0; rank < ranks_.count(); rank++) {
      const auto part = Marked(rank, count), whole = Marked(rank, n_ * count);
      expected.insert(expected.end(), part.begin(), part.end());
      const auto first = whole.begin() + static_cast<long>(static_cast<size_t>(rank) * count);
      expected_own.insert(expected_own.end(), first, first + static_cast<long>(count));
    }
    for (int rank = 0; rank < ranks_.count(); rank++) {
      ASSERT_EQ(receive[rank].As<uint32_t>(), expected) << rank;
      ASSERT_EQ(own[rank].As<uint32_t>(), expected_own) << rank;
    }
  }
}

// Block `block` of what `rank` holds.
std::vector<uint32_t> Block(int rank, size_t block, size_t count, size_t blocks) {
  const auto whole = Marked(rank, blocks * count);
  return {whole.begin() + static_cast<long>(block * count),
          whole.begin() + static_cast<long>((block + 1) * count)};
}

TEST_P(Moves, AlltoAll) {
  for (size_t count : kSizes) {
    const auto send = MarkedBuffers(ranks_.count(), n_ * count),
               receive = EmptyBuffers(ranks_.count(), n_ * count * 4);
    ranks_.Group([&](int rank) {
      return ncclAlltoAll(send[rank].at(), receive[rank].at(), count, ncclUint32, comm(rank), stream(rank));
    });
    ranks_.Wait();
    for (int rank = 0; rank < ranks_.count(); rank++) {
      std::vector<uint32_t> expected;
      for (int from = 0; from < ranks_.count(); from++) {
        const auto block = Block(from, static_cast<size_t>(rank), count, n_);
        expected.insert(expected.end(), block.begin(), block.end());
      }
      ASSERT_EQ(receive[rank].As<uint32_t>(), expected) << rank;
    }
  }
}

TEST_P(Moves, GatherAndScatter) {
  const int root = ranks_.count() - 1;
  for (size_t count : kSizes) {
    const auto send = MarkedBuffers(ranks_.count(), count), back = EmptyBuffers(ranks_.count(), count * 4);
    const auto in_place = MarkedBuffers(ranks_.count(), n_ * count);
    const Buffer all(root, n_ * count * 4, 0xAA);
    ranks_.Group([&](int rank) {
      return ncclGather(send[rank].at(), rank == root ? all.at() : nullptr, count, ncclUint32, root,
                        comm(rank), stream(rank));
    });
    ranks_.Group([&](int rank) {
      return ncclScatter(rank == root ? all.at() : nullptr, back[rank].at(), count, ncclUint32, root,
                         comm(rank), stream(rank));
    });
    ranks_.Group([&](int rank) {
      const size_t own = static_cast<size_t>(rank) * count * 4;
      return ncclGather(in_place[rank].at(own), in_place[rank].at(), count, ncclUint32, root, comm(rank),
                        stream(rank));
    });
    ranks_.Wait();
    std::vector<uint32_t> gathered, gathered_in_place;
    for (int rank = 0; rank < ranks_.count(); rank++) {
      const auto part = Marked(rank, count), block = Block(rank, static_cast<size_t>(rank), count, n_);
      gathered.insert(gathered.end(), part.begin(), part.end());
      gathered_in_place.insert(gathered_in_place.end(), block.begin(), block.end());
      ASSERT_EQ(back[rank].As<uint32_t>(), part) << rank;
    }
    ASSERT_EQ(all.As<uint32_t>(), gathered);
    ASSERT_EQ(in_place[root].As<uint32_t>(), gathered_in_place);
  }
}

// Everybody to everybody, in an order that differs from rank to rank, with collectives in between.
TEST_P(Moves, MessagesInAnyOrderOfAGroup) {
  for (size_t count : {size_t{0}, size_t{5}, size_t{80'001}}) {
    const auto send = MarkedBuffers(ranks_.count(), n_ * count),
               receive = EmptyBuffers(ranks_.count(), n_ * count * 4);
    const auto sum = EmptyBuffers(ranks_.count(), 4), one = MarkedBuffers(ranks_.count(), 1);
    ranks_.Group([&](int rank) {
      for (int step = 0; step < ranks_.count(); step++) {
        const int to = (rank * 3 + step) % ranks_.count(), from = ranks_.count() - 1 - step;
        const auto receive_one = [&] {
          EXPECT_NCCL_OK(ncclRecv(receive[rank].at(static_cast<size_t>(from) * count * 4), count, ncclUint32,
                                  from, comm(rank), stream(rank)));
        };
        if (rank % 2 == 0) receive_one();
        EXPECT_NCCL_OK(ncclSend(send[rank].at(static_cast<size_t>(to) * count * 4), count, ncclUint32, to,
                                comm(rank), stream(rank)));
        if (rank % 2 != 0) receive_one();
      }
      return ncclAllReduce(one[rank].at(), sum[rank].at(), 1, ncclUint32, ncclMax, comm(rank), stream(rank));
    });
    ranks_.Wait();
    for (int rank = 0; rank < ranks_.count(); rank++) {
      std::vector<uint32_t> expected;
      for (int from = 0; from < ranks_.count(); from++) {
        const auto block = Block(from, static_cast<size_t>(rank), count, n_);
        expected.insert(expected.end(), block.begin(), block.end());
      }
      ASSERT_EQ(receive[rank].As<uint32_t>(), expected) << rank;
      ASSERT_EQ(sum[rank].As<uint32_t>()[0], static_cast<uint32_t>(ranks_.count() - 1) << 24);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Moves, testing::Range(1, 9));

TEST(Collectives, FactorsOfTheRanksOwn) {
  const Ranks ranks(3);
  const size_t count = 1001;
  const std::vector<double> factors = {0.5, -2, 3};
  for (bool on_device : {false, true}) {
    const Values values = Inputs(ncclFloat32, ncclSum, 3, count);
    const auto send = MakeBuffers(ncclFloat32, values), receive = EmptyBuffers(3, count * 4);
    std::vector<Buffer> scalars;
    std::vector<ncclRedOp_t> ops(3);
    for (int rank = 0; rank < 3; rank++) {
      auto factor = static_cast<float>(factors[rank]);
      scalars.push_back(MakeBuffer(rank, std::vector<float>{factor}));
      NCCL_OK(ncclRedOpCreatePreMulSum(&ops[rank], on_device ? scalars[rank].at() : &factor, ncclFloat32,
                                       on_device ? ncclScalarDevice : ncclScalarHostImmediate,
                                       ranks.comms[rank]));
      EXPECT_GE(ops[rank], ncclNumOps);
    }
    ranks.Group([&](int rank) {
      return ncclAllReduce(send[rank].at(), receive[rank].at(), count, ncclFloat32, ops[rank],
                           ranks.comms[rank], ranks.streams[rank].get());
    });
    for (int rank = 0; rank < 3; rank++) NCCL_OK(ncclRedOpDestroy(ops[rank], ranks.comms[rank]));
    EXPECT_EQ(ncclRedOpDestroy(ops[0], ranks.comms[0]), ncclInvalidArgument);
    EXPECT_EQ(
        ncclAllReduce(send[0].at(), receive[0].at(), count, ncclFloat32, ops[0], ranks.comms[0], nullptr),
        ncclInvalidArgument);
    ranks.Wait();
    std::vector<float> expected(count);
    for (size_t i = 0; i < count; i++)
      expected[i] = static_cast<float>(values[0][i] * 0.5 + values[1][i] * -2 + values[2][i] * 3);
    for (int rank = 0; rank < 3; rank++) ASSERT_EQ(receive[rank].As<float>(), expected) << rank;
  }
}

// The order of the ranks decides, so every run gives the same bits and so does every rank.
TEST(Collectives, SumsAreThoseOfTheRanksInOrder) {
  const Ranks ranks(4);
  const size_t count = 20'000;
  std::vector<std::vector<float>> values(4, std::vector<float>(count));
  uint32_t state = 1;
  for (auto& each : values) {
    for (float& value : each) {
      state = state * 1664525 + 1013904223;
      value = std::ldexp(static_cast<float>(state >> 8), static_cast<int>(state % 40) - 20);
    }
  }
  std::vector<float> expected(count);
  for (size_t i = 0; i < count; i++)
    expected[i] = ((values[0][i] + values[1][i]) + values[2][i]) + values[3][i];
  for (int round = 0; round < 5; round++) {
    std::vector<Buffer> buffers;
    for (int rank = 0; rank < 4; rank++) buffers.push_back(MakeBuffer(rank, values[rank]));
    ranks.Group([&](int rank) {
      return ncclAllReduce(buffers[rank].at(), buffers[rank].at(), count, ncclFloat32, ncclSum,
                           ranks.comms[rank], ranks.streams[rank].get());
    });
    ranks.Wait();
    for (int rank = 0; rank < 4; rank++) ASSERT_EQ(buffers[rank].As<float>(), expected) << rank;
  }
}

}  // namespace
}  // namespace nccl
}  // namespace softgpu
