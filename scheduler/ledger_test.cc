#include "scheduler/ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace stasis::scheduler {
namespace {

// The definitions, summed millisecond by millisecond.
struct Naive {
  struct Job {
    JobSpec spec;
    bool live = false;
    int held = 0;
    double deserved = 0, utilized = 0;
  };
  std::vector<double> quotas;
  std::vector<Job> jobs;
  std::vector<std::vector<Ledger::Totals>> history;  // by time, by tenant: cumulative

  void SetQuotas(const std::vector<double>& weights, int devices) {
    double sum = 0;
    for (const double weight : weights) sum += weight;
    quotas.clear();
    for (const double weight : weights) quotas.push_back(devices * weight / sum);
  }
  // Nothing before the beginning, or of who came later.
  Ledger::Totals At(Time time, TenantId tenant) const {
    if (time < 0 || history[static_cast<size_t>(time)].size() <= tenant) return {};
    return history[static_cast<size_t>(time)][tenant];
  }

  void Step() {
    std::vector<Ledger::Totals> totals = history.empty() ? std::vector<Ledger::Totals>() : history.back();
    totals.resize(quotas.size());
    for (size_t tenant = 0; tenant < quotas.size(); ++tenant) {
      double demand = 0, weights = 0;
      for (const Job& job : jobs) {
        if (!job.live || job.spec.tenant != tenant) continue;
        demand += job.spec.gpus;
        weights += job.spec.weight;
        totals[tenant].utilized += job.held;
      }
      totals[tenant].deserved += std::min(demand, quotas[tenant]);
      for (Job& job : jobs) {
        if (!job.live || job.spec.tenant != tenant) continue;
        job.deserved += std::min<double>(job.spec.gpus, quotas[tenant] * job.spec.weight / weights);
        job.utilized += job.held;
      }
    }
    history.push_back(totals);
  }
};

// Nodes come and go, tenants come, weights change.
void ChangeCluster(std::mt19937& random, Time now, Ledger* ledger, std::vector<double>* weights,
                   int* devices) {
  switch (random() % 3) {
    case 0:
      *devices = 4 + static_cast<int>(random() % 20);
      return ledger->SetDevices(now, *devices);
    case 1: {
      weights->push_back(1 + random() % 3);
      const TenantId added = ledger->AddTenant(now, weights->back());
      ASSERT_EQ(added, weights->size() - 1);
      return;
    }
    default: {
      const TenantId tenant = random() % static_cast<unsigned>(weights->size());
      (*weights)[tenant] = 0.5 + random() % 4;
      return ledger->SetWeight(now, tenant, (*weights)[tenant]);
    }
  }
}

TEST(LedgerTest, AgreesWithTheDefinitionSummedNaively) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    const std::vector<TenantSpec> tenants = {{"a", 1}, {"b", 2.5}, {"c", 0.5}};
    const Time window = 60;
    Ledger ledger(16, tenants, window);
    Naive naive;
    for (TenantId i = 0; i < 3; ++i) naive.quotas.push_back(ledger.quota(i));
    std::vector<double> weights = {1, 2.5, 0.5};
    int devices = 16;
    std::vector<Ledger::Account> accounts;
    for (Time now = 0; now < 400; ++now) {
      if (random() % 50 == 0) {
        ChangeCluster(random, now, &ledger, &weights, &devices);
        naive.SetQuotas(weights, devices);
      }
      if (random() % 8 == 0) {
        JobSpec spec;
        spec.tenant = random() % static_cast<unsigned>(weights.size());
        spec.gpus = 1 + static_cast<int>(random() % 8);
        spec.weight = 1 + random() % 2;
        naive.jobs.push_back({spec, true, 0, 0, 0});
        accounts.push_back(ledger.Arrive(now, spec));
      }
      if (!accounts.empty() && random() % 4 == 0) {
        const size_t i = random() % accounts.size();
        Naive::Job& job = naive.jobs[i];
        if (job.live && random() % 5 == 0) {
          ledger.Leave(now, job.spec, &accounts[i]);
          EXPECT_NEAR(ledger.JobDeserved(accounts[i], now), job.deserved, 1e-6);
          job.live = false;
        } else if (job.live) {
          job.held = random() % 2 == 0 ? job.spec.gpus : 0;
          ledger.Hold(now, &accounts[i], job.held);
        }
      }
      naive.Step();
      const Time then = now + 1;
      for (TenantId tenant = 0; tenant < weights.size(); ++tenant) {
        const Ledger::Totals all = naive.history.back()[tenant];
        EXPECT_NEAR(ledger.Utilized(tenant, then), all.utilized, 1e-6);
        EXPECT_NEAR(ledger.Deserved(tenant, then), all.deserved, 1e-6);
        const Ledger::Totals before = naive.At(then - window - 1, tenant);
        EXPECT_NEAR(ledger.Window(tenant, then).utilized, all.utilized - before.utilized, 1e-6);
        EXPECT_NEAR(ledger.Window(tenant, then).deserved, all.deserved - before.deserved, 1e-6);
      }
      for (size_t i = 0; i < accounts.size(); ++i) {
        if (!naive.jobs[i].live) continue;
        EXPECT_NEAR(ledger.JobDeserved(accounts[i], then), naive.jobs[i].deserved, 1e-6);
        EXPECT_NEAR(ledger.JobUtilized(accounts[i], then), naive.jobs[i].utilized, 1e-6);
      }
      if (HasFailure()) FAIL() << "seed " << seed << ", time " << now;
    }
  }
}

TEST(LedgerTest, FairnessIsOneWhereNothingWasDeserved) {
  Ledger ledger(8, {{"a", 1}}, 1000);
  EXPECT_EQ(ledger.AllTime(0, 500).fairness(), 1);
  EXPECT_EQ(ledger.Window(0, 500).fairness(), 1);
}

TEST(LedgerTest, OldHistoryIsForgotten) {
  Ledger ledger(8, {{"a", 1}}, 100);
  JobSpec spec;
  spec.gpus = 2;
  Ledger::Account account = ledger.Arrive(0, spec);
  for (Time now = 1; now < 100000; ++now) ledger.Hold(now, &account, now % 2 == 0 ? 2 : 0);
  EXPECT_NEAR(ledger.Window(0, 100000).utilized, 100, 4);
  EXPECT_NEAR(ledger.Window(0, 100000).deserved, 200, 1e-6);
}

TEST(LedgerTest, WhatIsStoredIsTheSameWhateverTheWindowIsThen) {
  constexpr Time kSaved = 5000;
  Ledger ledger(8, {{"a", 1}}, 100);
  JobSpec spec;
  spec.gpus = 2;
  Ledger::Account account = ledger.Arrive(0, spec);
  for (Time now = 1; now <= kSaved; ++now) ledger.Hold(now, &account, now % 3 == 0 ? 2 : 0);
  Ledger same(0, {}, 100), longer(0, {}, 1000);
  ASSERT_LT(ledger.Save(kSaved)[0].history.size(), 150u);
  ASSERT_TRUE(same.Restore(8, ledger.Save(kSaved)).ok());
  ASSERT_TRUE(longer.Restore(8, ledger.Save(kSaved)).ok());
  for (Time now = kSaved; now < kSaved + 300; now += 7) {
    EXPECT_EQ(same.Window(0, now).utilized, ledger.Window(0, now).utilized);
    EXPECT_EQ(same.Window(0, now).deserved, ledger.Window(0, now).deserved);
    EXPECT_EQ(same.AllTime(0, now).utilized, ledger.AllTime(0, now).utilized);
    EXPECT_NEAR(longer.Window(0, now).deserved, 2 * static_cast<double>(now - kSaved + 100), 2)
        << "as far back as is known";
  }
}

TEST(LedgerTest, AnAccountThatCannotBeIsNotRestored) {
  Ledger ledger(8, {{"a", 1}}, 100), other(0, {}, 100);
  std::vector<Ledger::Tenant> saved = ledger.Save(0);
  saved[0].history.clear();
  EXPECT_EQ(other.Restore(8, saved).code(), StatusCode::kCorrupt);
  saved[0].history = {{5, 0, 0}, {4, 0, 0}};
  EXPECT_EQ(other.Restore(8, saved).code(), StatusCode::kCorrupt);
  saved[0].history = {{0, 0, 0}};
  saved[0].weight = 0;
  EXPECT_EQ(other.Restore(8, saved).code(), StatusCode::kCorrupt);
}

TEST(LedgerTest, JainIndex) {
  EXPECT_DOUBLE_EQ(JainIndex({}), 1);
  EXPECT_DOUBLE_EQ(JainIndex({2, 2, 2}), 1);
  EXPECT_DOUBLE_EQ(JainIndex({1, 0, 0, 0}), 0.25);
}

}  // namespace
}  // namespace stasis::scheduler
