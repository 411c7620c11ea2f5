"""A log of a program that ended before its first step is the log of a run that failed, and says why it ended."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from trainspec_validate.cli.validate import command

START = "2026-01-05 10:00:00 INFO loading the tokenizer for torch\n"
TRACE = (
    "Traceback (most recent call last):\n"
    '  File "/srv/job/train.py", line 9, in <module>\n'
    "    main()\n"
    '  File "/srv/job/train.py", line 5, in main\n'
    "    lr = config['lr']\n"
)
STEP = "iter {}: loss 2.5, time 250.00ms, mfu 30.00%\n"


def output(path: Path, text: str, *options: str) -> tuple[int, str]:
    path.write_text(text, encoding="utf-8")
    done = CliRunner().invoke(command, [str(path), "--color", "never", *options])
    return done.exit_code, done.output


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{TRACE}KeyError: 'lr'\n", "the log ends with: KeyError: 'lr'"),
        (
            "".join(f"[rank1]: {line}\n" for line in f"{TRACE}ValueError: bad shape".splitlines())
            + "W0105 elastic/multiprocessing/api.py:900] Sending process 5 closing signal SIGTERM\n",
            "the log ends with: ValueError: bad shape",
        ),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n", "(fault class: process)"),
        (
            "[rank3]:[E1105 ProcessGroupNCCL.cpp:607] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(",
            "(fault class: hang)",
        ),
        ("train.py: error: unrecognized arguments: --lr 1e-4\n", "unrecognized arguments: --lr 1e-4"),
        ("slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2026-01-05T10:00:00 DUE TO TIME LIMIT ***\n", "time_limit"),
    ],
)
@pytest.mark.parametrize("name", ["a.log", "a.err"])
def test_a_log_with_nothing_but_a_crash_is_a_run_that_failed(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / "d").mkdir()
    code, told = output(tmp_path / "d" / name, START * 3 + text)
    assert words in told
    assert "incomplete: no completed step, 0 readable metrics" in told.splitlines()[-1]
    assert code == 0
    done = CliRunner().invoke(command, [str(tmp_path / "d"), "--color", "never", "--fail-on", "unjudged"])
    assert words in done.output
    assert done.exit_code == 1


def test_a_crash_after_more_output_than_a_start_is_found(tmp_path: Path) -> None:
    _, told = output(tmp_path / "a.log", START * 8_000 + TRACE + "KeyError: 'lr'\n")
    assert "the log ends with: KeyError: 'lr'" in told


@pytest.mark.parametrize(
    "text",
    [
        f"{TRACE}KeyError: 'lr'\n{START * 200}",
        f"{START}Exception ignored in: <function f at 0x7f>\n{TRACE}ImportError: no triton\n",
        "epoch 1 step 10 loss 2.5\nepoch 1 step 20 loss 2.4\nKilled\n",
        f"2026-01-05 10:00:00,1 INFO MainThread:7 [wandb_setup.py:_flush():79] epoch\n{TRACE}OSError: no route\n",
        "This page says what torch prints:\n> Killed\n",
    ],
    ids=["goes-on", "handled", "steps-of-another-program", "client-of-a-logger", "quotation"],
)
def test_a_log_that_goes_on_is_no_crash(tmp_path: Path, text: str) -> None:
    code, told = output(tmp_path / "a.log", text)
    assert code == 2
    assert "the run states" not in told


def test_a_log_of_steps_states_the_exception_that_it_ends_with(tmp_path: Path) -> None:
    steps = "".join(STEP.format(step) for step in range(50))
    assert "the log ends with: KeyError: 'lr'" in output(tmp_path / "a.log", f"{steps}{TRACE}KeyError: 'lr'\n")[1]
    again = f"{steps}{TRACE}KeyError: 'lr'\n{STEP.format(50)}{STEP.format(51)}"
    assert "the log ends with" not in output(tmp_path / "b.log", again)[1]


def test_the_last_of_chained_exceptions_is_the_end(tmp_path: Path) -> None:
    chain = "\nDuring handling of the above exception, another exception occurred:\n\n"
    _, told = output(tmp_path / "a.log", f"{START}{TRACE}KeyError: 'lr'\n{chain}{TRACE}ValueError: no lr\n")
    assert "the log ends with: ValueError: no lr" in told
    assert "KeyError" not in told


def test_the_exception_of_a_worker_is_the_end(tmp_path: Path) -> None:
    caught = "KeyError: Caught KeyError in DataLoader worker process 0.\nOriginal "
    _, told = output(tmp_path / "a.log", f"{START}{TRACE}{caught}{TRACE}KeyError: 'image'\n")
    assert "the log ends with: KeyError: 'image'" in told
