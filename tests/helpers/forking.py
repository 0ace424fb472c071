"""Work in forked processes: of rankers that the parent has used already, and of models that may crash it."""

import os
import random
import signal
import subprocess
import sys
import time

_CODE = """
import multiprocessing, os, pickle, sys, tempfile
import numpy as np
from sinkprop import load_model
from {module} import {name} as Ranker

rng = np.random.default_rng(0)
X, qid = rng.normal(size=(6000, 4)), np.repeat(np.arange(60), 100)
y = (X[:, 0] > 0.5).astype(float)
ranker = Ranker(**{parameters!r}, n_threads=2).fit(X, y, qid=qid)
scores = ranker.predict(X)
folder = tempfile.TemporaryDirectory()
path = os.path.join(folder.name, "m")
ranker.save(path)
loaded, pickled = load_model(path), pickle.dumps(ranker)
loaded.predict(X)

def saved_again():
    loaded.save(path + "2")
    return load_model(path + "2")

steps = {{
    "predict": lambda: ranker,
    "load_model": lambda: load_model(path),
    "save": saved_again,
    "unpickle": lambda: pickle.loads(pickled),
    "pickle": lambda: pickle.loads(pickle.dumps(ranker)),
    "fit": lambda: Ranker(**{parameters!r}, n_threads=2).fit(X, y, qid=qid),
}}

def child():
    for name, step in steps.items():
        print(name, end=" ", flush=True)
        if (step().predict(X) != scores).any():
            sys.exit(3)

process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join(60)
print(process.exitcode, end="")
process.kill()
"""


def steps_of_a_fork(kind, **parameters):
    """Steps that a forked process took with a ranker that its parent had fitted and used, and how it ended.

    All is well if this is ALL_STEPS. OpenMP's threads do not exist in a forked process, and a library that
    counts on them waits forever. The last step named is the one that did not end.
    """
    code = _CODE.format(module=kind.__module__, name=kind.__name__, parameters=parameters)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    return done.stdout or done.stderr


ALL_STEPS = "predict load_model save unpickle pickle fit 0"


def end_of_child(work, seconds=60.0):
    """How a forked process ended that called work(): its exit status, "hang", or the number of its signal.

    The status is what work() returns, or 1 if it raises an error.
    """
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = work()
        finally:
            os._exit(status)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.WEXITSTATUS(status) if os.WIFEXITED(status) else f"signal {os.WTERMSIG(status)}"
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hang"


def uses_of_changed_digits(texts, read, use, count):
    """Exit status for `end_of_child`: texts with one digit changed are refused by `read`, or used.

    0 if some were refused with a ValueError and some were used, else 2.
    """
    draw, used = random.Random(0), 0
    digits = [[i for i, c in enumerate(text) if c.isdigit()] for text in texts]
    for _ in range(count):
        number = draw.randrange(len(texts))
        place = draw.choice(digits[number])
        text = texts[number][:place] + draw.choice("0123456789") + texts[number][place + 1 :]
        try:
            model = read(text)
        except ValueError:
            continue
        use(model)
        used += 1
    return 0 if count // 20 < used < count else 2
