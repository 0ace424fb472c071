"""Learning permutations online: regret beside its bound, against the perturbed leader; belief matrices.

    python benchmarks/permutation_learning.py random         100 random sequences, about ten minutes
    python benchmarks/permutation_learning.py adversaries    10 adversaries, about five minutes
    python benchmarks/permutation_learning.py beliefs        against all rankings, about one minute
    python benchmarks/permutation_learning.py times          seconds per round and per observation

Regret is the loss less that of the best ranking in hindsight: the expected loss of the matrix for PermELearn
(its rankings are drawn from it), and the loss of the drawn rankings for the perturbed leader, whose expected
loss has no formula. Both learn with rates that are tuned by their own bounds, for the known number of rounds.
"x 4" is the tuned rate times 4; "best" is the one of the rates of a row of the table with the smallest mean
regret, which is known only in hindsight.
"""

import argparse
import itertools
import math
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from sinkprop.objective.permutation import choose_permutation
from sinkprop.objective.sinkhorn_limit import sinkhorn_limit
from sinkprop.permutations import (
    BeliefMatrix,
    PermutationLearner,
    PerturbedLeader,
    best_ranking,
    condition,
    play,
)

FACTORS = {"PermELearn": (1, 4, 16, 64), "exponential": (1, 16, 64, 256, 1024), "uniform": (1, 16, 256, 1024)}
FEW = {"PermELearn": (1, 4), "exponential": (1, 16, 64), "uniform": (1, 16, 64)}


def target(rng, n):
    """Losses 0 on the entries of a random ranking, 1 elsewhere."""
    return 1.0 - np.eye(n)[rng.permutation(n)]


def random_losses(kind, T, n, rng):
    if kind == "uniform":
        return rng.random((T, n, n))
    if kind == "means":
        return (rng.random((T, n, n)) < rng.random((n, n))).astype(float)
    if kind == "sparse":
        return rng.random((T, n, n)) * (rng.random((T, n, n)) < 0.1 * rng.random((n, n)))
    if kind == "noisy target":
        noise = rng.random((T, n, n)) < 0.3
        return np.where(noise, rng.random((T, n, n)), target(rng, n))
    walk = np.cumsum(0.1 * rng.normal(size=(T, n, n)), axis=0)
    return 1 / (1 + np.exp(-walk))


KINDS = ("uniform", "means", "sparse", "noisy target", "random walk")


def made(method, n, T, feedback, factor=1, seed=0):
    if method == "PermELearn":
        tuned = PermutationLearner(n, n_rounds=T, feedback=feedback, seed=seed)
        if factor == 1:
            return tuned
        rate = factor * tuned.rate()
        return PermutationLearner(n, learning_rate=rate, feedback=feedback, seed=seed)
    tuned = PerturbedLeader(n, n_rounds=T, feedback=feedback, perturbation=method, seed=seed)
    if factor == 1:
        return tuned
    return PerturbedLeader(
        n,
        learning_rate=factor * tuned.learning_rate,
        feedback=feedback,
        perturbation=method,
        max_draws=None if feedback == "full" else tuned.max_draws,
        seed=seed,
    )


def methods(feedback):
    return ("PermELearn", "exponential", "uniform") if feedback == "full" else ("PermELearn", "exponential")


def sequences(T=500):
    for i in range(100):
        rng = np.random.default_rng(i)
        n = int(rng.integers(3, 13))
        yield KINDS[i % 5], random_losses(KINDS[i % 5], T, n, rng)


def random_sequences():
    for feedback in ("full", "semi-bandit"):
        found, drawn = {}, []
        for i, (kind, losses) in enumerate(sequences()):
            T, n, _ = losses.shape
            for method in methods(feedback):
                for factor in FACTORS[method]:
                    record = play(made(method, n, T, feedback, factor, i), losses)
                    found.setdefault((method, factor), []).append(record.regret[-1])
                    if factor == 1:
                        ratios = record.regret / record.bound
                        found.setdefault((method, "ratio"), []).append(ratios.max())
                        found.setdefault((method, kind), []).append(record.regret[-1])
                    if (method, factor) == ("PermELearn", 1):
                        drawn.append(record.loss[-1] - record.best_loss[-1])
        ratio = np.array(found["PermELearn", "ratio"])
        print(
            f"\n{feedback} feedback, 100 random sequences of 500 rounds, n from 3 to 12\n"
            f"PermELearn below its bound in every round: {np.sum(ratio <= 1)} of 100; "
            f"largest share of the bound {ratio.max():.2f}\n"
            f"mean regret of its drawn rankings {np.mean(drawn):.1f}\n"
        )
        tuned = {method: np.array(found[method, 1]) for method in methods(feedback)}
        for method in methods(feedback)[1:]:
            print(f"less regret than {method}: {np.sum(tuned['PermELearn'] < tuned[method])} of 100")
        print(f"\n| | tuned | best | rate | {' | '.join(KINDS)} |")
        print("|---" * (4 + len(KINDS)) + "|")
        for method in methods(feedback):
            means = {factor: np.mean(found[method, factor]) for factor in FACTORS[method]}
            best = min(means, key=means.get)
            kinds = " | ".join(f"{np.mean(found[method, kind]):.1f}" for kind in KINDS)
            print(f"| {method} | {means[1]:.1f} | {means[best]:.1f} | x {best} | {kinds} |", flush=True)


def on(ranking):
    L = np.zeros((len(ranking), len(ranking)))
    L[ranking, np.arange(len(ranking))] = 1
    return L


def adversaries(n, T, seed):
    """Names and adversaries: functions from the learner to the losses of the round."""
    rng = np.random.default_rng(seed)
    targets = [target(rng, n) for _ in range(T)]
    last = {}

    def drawn(learner):  # loss on what the learner drew last
        previous = last.get("drawn", np.arange(n))
        copy = type(learner).from_state(learner.state())
        last["drawn"] = copy.draw()  # what a draw from the same distribution gives now
        return on(previous)

    def likeliest(learner):  # loss on the most probable entries, ties resolved at random
        if hasattr(learner, "weights"):
            probabilities = learner.weights
        else:
            copy, probabilities = type(learner).from_state(learner.state()), np.zeros((n, n))
            for _ in range(20):
                probabilities[copy.draw(), np.arange(n)] += 1 / 20
        return on(best_ranking(-probabilities - 1e-6 * rng.random((n, n)))[0])

    def trap(learner):  # the leader changes in every round
        L = np.zeros((n, n))
        even = learner.rounds % 2 == 0
        L[np.arange(n), np.arange(n)] = 0.5 if learner.rounds == 0 else float(not even)
        L[np.roll(np.arange(n), 1), np.arange(n)] = float(even and learner.rounds > 0)
        return L

    def drifting(learner):
        share = (4 * learner.rounds / T) % 1
        leg = int(4 * learner.rounds / T)
        return (1 - share) * targets[leg] + share * targets[leg + 1]

    return {
        "switch halfway": lambda learner: targets[int(2 * learner.rounds >= T)],
        "switch every 25": lambda learner: targets[(learner.rounds // 25) % 4],
        "on the leader": lambda learner: on(learner.predict()),
        "on the likeliest": likeliest,
        "on the last draw": drawn,
        "cyclic": lambda learner: on((np.arange(n) + learner.rounds) % n),
        "sparse": lambda _: np.eye(n * n)[rng.integers(n * n)].reshape(n, n),
        "alternating trap": trap,
        "fair coins": lambda _: (rng.random((n, n)) < 0.5).astype(float),
        "drifting": drifting,
    }


def adversarial(n=8, T=1000, seeds=2):
    for feedback in ("full", "semi-bandit"):
        print(f"\n{feedback} feedback, n = {n}, {T} rounds, means of {seeds} runs: regret\n")
        names = methods(feedback)
        print(f"| adversary | bound | largest share | {' | '.join(names)} |")
        print("|---" * (3 + len(names)) + "|")
        found = {}
        for adversary in adversaries(n, T, 0):
            share = []
            for name in names:
                for factor, seed in itertools.product(FEW[name], range(seeds)):
                    losses = adversaries(n, T, seed)[adversary]
                    record = play(made(name, n, T, feedback, factor, seed), losses, T)
                    found.setdefault((name, factor, adversary), []).append(record.regret[-1])
                    if (name, factor) == ("PermELearn", 1):
                        bound = record.bound[-1]
                        share.append((record.regret / record.bound).max())
            means = " | ".join(f"{np.mean(found[name, 1, adversary]):.1f}" for name in names)
            print(f"| {adversary} | {bound:.0f} | {max(share):.2f} | {means} |", flush=True)
        for label, best in (("mean", False), ("mean, best rate", True)):
            cells = []
            for name in names:
                means = {
                    factor: np.mean([np.mean(v) for key, v in found.items() if key[:2] == (name, factor)])
                    for factor in FEW[name]
                }
                factor = min(means, key=means.get) if best else 1
                cells.append(f"{means[factor]:.1f}" + (f" (x {factor})" if best else ""))
            print(f"| {label} | | | {' | '.join(cells)} |", flush=True)
    print(
        "\nimplicit exploration, semi-bandit feedback, 10 runs: mean (standard deviation) of the regret of "
        "the drawn rankings"
    )
    rng = np.random.default_rng(0)
    cases = {
        "fair coins": (rng.random((T, n, n)) < 0.5).astype(float),
        "noisy target": random_losses("noisy target", T, n, rng),
    }
    eta = PermutationLearner(n, n_rounds=T, feedback="semi-bandit").rate()
    for (name, losses), factor in itertools.product(cases.items(), (0, 0.5, 2)):
        runs = [
            play(
                PermutationLearner(
                    n, learning_rate=eta, exploration=factor * eta, feedback="semi-bandit", seed=s
                ),
                losses,
            )
            for s in range(10)
        ]
        regret = [run.loss[-1] - run.best_loss[-1] for run in runs]
        print(f"  {name}, exploration = {factor} eta: {np.mean(regret):.0f} ({np.std(regret):.0f})")


class Exact:
    """Distribution over all rankings of n documents, updated by Bayes' rule."""

    def __init__(self, n):
        self.ranks = np.array(list(itertools.permutations(range(n))))
        self.p = np.full(len(self.ranks), 1 / len(self.ranks))
        self.place = {tuple(s): i for i, s in enumerate(self.ranks.tolist())}

    def weigh(self, likelihood, document):
        self.p = self.p * likelihood[self.ranks[:, document]]
        self.p /= self.p.sum()

    def swap(self, i, j, chance):
        other = self.ranks.copy()
        other[:, [i, j]] = other[:, [j, i]]
        self.p = (1 - chance) * self.p + chance * self.p[[self.place[tuple(s)] for s in other.tolist()]]

    def matrix(self):
        n = self.ranks.shape[1]
        P = np.zeros((n, n))
        for j in range(n):
            P[j] = np.bincount(self.ranks[:, j], self.p, n)
        return P


def product_marginals(Pi):
    """Marginals of the distribution over rankings proportional to the product of the entries of Pi."""
    exact = Exact(len(Pi))
    exact.p = np.prod(Pi[np.arange(len(Pi)), exact.ranks], axis=1)
    exact.p /= exact.p.sum()
    return exact.matrix()


def observed():
    print(
        "condition(Pi, 0, k), n = 6: largest difference from exact marginals of the product distribution, in"
    )
    print("the mean over 100 matrices exp(spread * normal) and all k; and the same for Pi itself")
    for spread in (0.25, 0.5, 1.0, 2.0):
        after, before = [], []
        for seed in range(100):
            A = np.exp(spread * np.random.default_rng(seed).normal(size=(6, 6)))
            Pi = sinkhorn_limit(A).matrix
            before.append(np.abs(Pi - product_marginals(Pi)).max())
            for k in range(6):
                found = condition(Pi, 0, k + 1)
                after.append(np.abs(found - product_marginals(found)).max())
        print(f"  spread {spread}: {np.mean(after):.3f}, before {np.mean(before):.3f}", flush=True)


def tracked(runs=200, steps=60):
    n, hit, chance = 5, 0.7, 0.3
    found = {}
    for run in range(runs):
        rng = np.random.default_rng(run)
        truth, exact, rows = rng.permutation(n), Exact(n), np.full((n, n), 1 / n)
        belief = scaled = BeliefMatrix.uniform(n)
        for _ in range(steps):
            i, j = rng.choice(n, 2, replace=False)
            if rng.random() < chance:
                truth[[i, j]] = truth[[j, i]]
            exact.swap(i, j, chance)
            belief = belief.swap(int(i), int(j), chance)
            scaled = scaled.swap(int(i), int(j), chance)
            rows[[i, j]] = (1 - chance) * rows[[i, j]] + chance * rows[[j, i]]
            seen = int(rng.integers(n))
            others = [k for k in range(n) if k != truth[seen]]
            label = truth[seen] if rng.random() < hit else rng.choice(others)
            likelihood = np.full(n, (1 - hit) / (n - 1))
            likelihood[label] = hit
            exact.weigh(likelihood, seen)
            belief = belief.weigh(likelihood, document=seen)
            scaled = scaled.weigh(np.where(np.arange(n)[:, None] == seen, likelihood, 1.0))
            rows[seen] *= likelihood
            rows[seen] /= rows[seen].sum()
            P = exact.matrix()
            for name, Q in (
                ("exact", P),
                ("belief matrix", belief.matrix),
                ("all entries scaled", scaled.matrix),
                ("rows alone", rows),
            ):
                guess = np.argsort(choose_permutation(np.maximum(Q, 1e-300), method="hungarian"))
                found.setdefault(name, []).append(
                    (
                        np.log(Q[np.arange(n), truth]).mean(),
                        np.mean(guess == truth),
                        np.abs(Q - P).mean(),
                    )
                )
    print(
        f"\nidentity tracking, n = {n}, {runs} runs of {steps} steps, each with an exchange ({chance}) "
        f"and a label ({hit} right)"
    )
    print("| | log score | identities right | mean difference from exact |\n|---|---|---|---|")
    for name, values in found.items():
        score, right, apart = np.mean(values, axis=0)
        print(f"| {name} | {score:.3f} | {100 * right:.1f}% | {apart:.4f} |")


def times():
    play(made("PermELearn", 3, 5, "full"), np.zeros((5, 3, 3)))  # imports
    print(
        "milliseconds of processor time per round, draw and update: PermELearn with full information and "
        "with semi-bandit feedback, perturbed leader with both"
    )
    for n, T in ((10, 1000), (30, 500), (100, 100), (300, 10)):
        losses = (np.random.default_rng(0).random((T, n, n)) < 0.5).astype(float)
        row = []
        for method, feedback in itertools.product(("PermELearn", "exponential"), ("full", "semi-bandit")):
            learner, start = made(method, n, T, feedback), time.process_time()
            for L in losses:
                ranking = learner.draw()
                learner.update(L if feedback == "full" else L[ranking, np.arange(n)])
            row.append(1e3 * (time.process_time() - start) / T)
        print(f"  n = {n:3d}: " + "  ".join(f"{x:.2f}" for x in row), flush=True)
    for n in (10, 100, 1000):
        Pi = sinkhorn_limit(np.exp(np.random.default_rng(0).normal(size=(n, n))), tol=1e-13).matrix
        start = time.process_time()
        condition(Pi, 0, 1)
        print(f"  condition, n = {n}: {1e3 * (time.process_time() - start):.1f} ms")
    assert math.isfinite(Pi.sum())


def beliefs():
    observed()
    tracked()


PARTS = {"random": random_sequences, "adversaries": adversarial, "beliefs": beliefs, "times": times}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=tuple(PARTS))
    PARTS[parser.parse_args().what]()
