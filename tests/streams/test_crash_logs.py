"""A log of a program that is not known, or that reported no step, is the log of a run that failed; why is reported."""

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
BY_HOST = "".join(f"0: {line}\n" for line in TRACE.splitlines())
"""The same behind the number of a node, as `srun --label` writes it."""
FRAMES_BY_HOST = BY_HOST.partition("\n")[2]
"""Frames of the other one, after the exception of the first."""
IGNORED = "0: Exception ignored in atexit callback: <f>\n"
OTHER = "epoch 1 step {} loss 2.5\n"
"""A step of a program that is not known."""
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
    ],
)
@pytest.mark.parametrize("name", ["a.log", "a.err"])
def test_a_log_with_nothing_but_a_crash_is_a_run_that_failed(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / "d").mkdir()
    code, told = output(tmp_path / "d" / name, START * 3 + text)
    assert words in told
    assert "incomplete: no completed step, 0 readable metrics" in told.splitlines()[-1]
    assert code == 1
    done = CliRunner().invoke(command, [str(tmp_path / "d"), "--color", "never", "--format", "concise"])
    found = next(line for line in done.output.splitlines() if "error[TS-TEL-048]" in line)
    assert words in found
    assert done.exit_code == 1


def test_a_crash_after_more_output_than_a_start_is_found(tmp_path: Path) -> None:
    _, told = output(tmp_path / "a.log", START * 8_000 + TRACE + "KeyError: 'lr'\n")
    assert "the log ends with: KeyError: 'lr'" in told


@pytest.mark.parametrize(
    "text",
    [
        f"{TRACE}KeyError: 'lr'\n{START * 200}",
        f"{START}Exception ignored in: <function f at 0x7f>\n{TRACE}ImportError: no triton\n",
        f"{START}0: Exception ignored in atexit callback: <function f at 0x7f>\n{BY_HOST}0: OSError: no file\n",
        START
        + IGNORED
        + BY_HOST
        + IGNORED
        + BY_HOST
        + "0: OSError: no file\n"
        + FRAMES_BY_HOST
        + "0: OSError: no file\n",
        START + "0: Exception ignored in atexit callback: <f>\n" * 2 + BY_HOST * 2 + "0: OSError: no file\n" * 2,
        f"{START}{'x' * 20_000}\nException ignored on calling ctypes callback function: <f>\n{TRACE}OSError: no\n",
        f"{OTHER.format(10)}{TRACE}KeyError: 'lr'\n{OTHER.format(20) * 200}",
        f"{START}{TRACE}KeyError: 'lr'\n\nRan 5 tests in 0.1s\n\nFAILED (errors=1)\n",
        f"build\trun\t2026-01-05T10:00:00.1Z ##[group]Run it\n{START}{TRACE}KeyError: 'lr'\n",
        "The epoch of training, by example:\n\n>>> train()\nTraceback (most recent call last):\nKeyError: 'lr'\n",
        f"2026-01-05 10:00:00,1 INFO MainThread:7 [wandb_setup.py:_flush():79] epoch\n{TRACE}OSError: no route\n",
        "This page says what torch prints:\n> Killed\n",
    ],
    ids=[
        "goes-on",
        "handled",
        "handled-by-host",
        "handled-within-another",
        "handled-of-two-ranks",
        "handled-behind-a-long-line",
        "steps-go-on",
        "tests",
        "continuous-integration",
        "example",
        "client-of-a-logger",
        "quotation",
    ],
)
def test_a_log_that_goes_on_is_no_crash(tmp_path: Path, text: str) -> None:
    code, told = output(tmp_path / "a.log", text)
    assert code == 2
    assert "the run states" not in told


KEYS = "".join(f"\tsize mismatch for layers.{i}.weight: copying a param with shape [4096]\n" for i in range(300))
FRAMES = "".join(f"frame #{i}: c10::Error::Error(std::string) + 0x57 (0x7f in libc10.so)\n" for i in range(200))
FIELDS = "".join(f"model.layers.{i}\n  Field required [type=missing]\n" for i in range(200))


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("RuntimeError: Error(s) in loading state_dict for Llama:", KEYS),
        ("RuntimeError: Error(s) in loading state_dict for Llama:", KEYS.replace("\t", "")),
        ("RuntimeError: Error(s) in loading state_dict for Llama:", KEYS * 30),
        ("torch.distributed.DistBackendError: NCCL error in: x.cpp", FRAMES),
        ("pydantic.ValidationError: 200 validation errors for Config", FIELDS),
    ],
    ids=["indented", "list", "longer than the end that is searched first", "frames", "fields"],
)
@pytest.mark.parametrize("by", ["", "[rank3]: "])
def test_a_message_of_many_lines_is_of_its_exception(tmp_path: Path, said: str, message: str, by: str) -> None:
    text = "".join(f"{by}{line}\n" for line in f"{TRACE}{said}\n{message}".splitlines())
    code, told = output(tmp_path / "a.log", START * 3 + text)
    assert said in told
    assert code == 1


@pytest.mark.parametrize(
    "after",
    [
        "now the next file is read\n" * 100,
        "  epoch 3 loss 2.0\n" * 100,
        "    loading shards:  10%|# | 1/9\n" * 100,
        "```\n\n" + "    An example of another page.\n\nA sentence.\n" * 100,
    ],
    ids=["output", "steps", "progress bar", "page"],
)
def test_other_output_is_no_message(tmp_path: Path, after: str) -> None:
    code, told = output(tmp_path / "a.log", f"{START}{TRACE}KeyError: 'lr'\n{after}")
    assert "the log ends with" not in told
    assert code == 2


@pytest.mark.parametrize("by", ["", "0: ", "[rank3]: "])
def test_an_operator_who_ends_a_run_makes_no_error(tmp_path: Path, by: str) -> None:
    lines = (STEP * 9).format(*range(9)) + TRACE + "KeyboardInterrupt\n"
    code, told = output(tmp_path / "a.log", "".join(f"{by}{line}\n" for line in lines.splitlines()))
    assert code == 0
    assert "the log ends with" not in told


@pytest.mark.parametrize("between", ["", "going on\n"])
def test_a_crash_behind_an_exception_that_was_ignored_is_found(tmp_path: Path, between: str) -> None:
    ignored = f"Exception ignored in: <function f at 0x7f>\n{TRACE}ImportError: no triton\n"
    _, told = output(tmp_path / "a.log", f"{START}{ignored}{between}{TRACE}KeyError: 'lr'\n")
    assert "the log ends with: KeyError: 'lr'" in told


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (f"{OTHER.format(1)}{OTHER.format(2)}Killed\n", 3, "the log says: Killed (fault class: process)"),
        (f"{OTHER.format(1)}{OTHER.format(2)}{TRACE}KeyError: 'lr'\n", 8, "the log ends with: KeyError: 'lr'"),
        (f"{OTHER.format(1)}{OTHER.format(2)}\0\0\0\n{TRACE}KeyError: 'lr'\n", 9, "the log ends with: KeyError: 'lr'"),
        ("\0" * 4_000 + f"Killed\n{START}", 1, "the log says: Killed (fault class: process)"),
        ("train:  4%|#| 1/28 [00:02<00:08, 5.0it/s]Killed\n", 1, "the log says: Killed (fault class: process)"),
        (f"train:  4%|#| 1/28\rtrain:  8%|#| 2/28{TRACE}ValueError: no\n", 6, "the log ends with: ValueError: no"),
        ("{'loss': 2.5, 'step': 4}\nsegmentation fault (core dumped)\n", 2, "says: segmentation fault (core dumped)"),
        (
            "Epoch 1/1\nmpirun noticed that process rank 7 with PID 5 on node n1 exited on signal 9 (Killed).\n",
            *(2, "mpirun noticed that process rank 7 with PID 5 on node n1 exited on signal 9"),
        ),
    ],
)
@pytest.mark.parametrize("name", ["a.log", "job.e1234567", "train.log.1", "stderr"])
def test_the_end_of_a_program_that_is_not_known_is_a_finding(
    tmp_path: Path, name: str, text: str, line: int, words: str
) -> None:
    code, told = output(tmp_path / name, text, "--format", "concise")
    found = [each for each in told.splitlines() if "error[" in each]
    assert len(found) == 1
    assert f"{name}:{line}:1: error[TS-TEL-048] " in found[0]
    assert words in found[0]
    assert "no metric of this log is judged" in found[0]
    assert code == 1


def test_the_end_of_a_long_log_is_that_of_its_last_lines(tmp_path: Path) -> None:
    many = OTHER.format(1) * 400_000  # beyond one piece of a search
    code, told = output(tmp_path / "a.log", f"{many}{TRACE}KeyError: 'lr'\n", "--format", "concise")
    assert "a.log:400006:1: error[TS-TEL-048] the log ends with: KeyError: 'lr'" in told
    code, told = output(tmp_path / "b.log", f"{many[:8_000_000]}\n{TRACE}KeyError: 'lr'\n{many}")
    assert (code, "KeyError" in told) == (2, False)


def test_a_log_of_steps_states_the_exception_that_it_ends_with(tmp_path: Path) -> None:
    steps = "".join(STEP.format(step) for step in range(50))
    code, told = output(tmp_path / "a.log", f"{steps}{TRACE}KeyError: 'lr'\n", "--format", "concise")
    assert "a.log:56:1: error[TS-TEL-048] the log ends with: KeyError: 'lr' (look" in told
    assert code == 1
    again = f"{steps}{TRACE}KeyError: 'lr'\n{STEP.format(50)}{STEP.format(51)}"
    assert "the log ends with" not in output(tmp_path / "b.log", again)[1]


def test_a_log_whose_lines_begin_with_the_epoch_continues_after_an_exception(tmp_path: Path) -> None:
    row = "Training epoch 0, iteration {0}/19 | lr: 1.6e-06 | global_step: {0} | reduced_train_loss: 11.03\n"
    rows = [row.format(step) for step in range(20)]
    text = "".join([*rows[:17], f"{TRACE}Exception: at step 17!\n", *rows[10:]])
    code, told = output(tmp_path / "a.log", text, "--format", "concise")
    assert (code, "the log ends with" in told) == (0, False)
    code, told = output(tmp_path / "b.log", "".join([*rows[:17], f"{TRACE}Exception: at step 17!\n"]))
    assert (code, "the log ends with: Exception: at step 17!" in told) == (1, True)


@pytest.mark.parametrize("line", ["wandb: train/norm 0.25\n", "sending file list\n", "4200.0 srun 12 COMPLETED\n"])
def test_other_lines_after_the_end_of_a_known_program_are_no_steps(line: str, tmp_path: Path) -> None:
    steps = "".join(STEP.format(step) for step in range(12))
    code, told = output(tmp_path / "a.log", f"{steps}{TRACE}KeyError: 'lr'\n{line * 300}")
    assert "the log ends with: KeyError: 'lr'" in told
    assert code == 1


@pytest.mark.parametrize(
    "row",
    [
        "2022-08-09 12:50:17,405 - mmdet - INFO - Epoch [1][{}/1950]  lr: 1.0e-04, eta: 17:07, loss_cls: 0.2\n",
        "Epoch {}/100: loss=0.3\n",
        "train:  3%|#   | {}/1950 [00:12<08:01, 2.1it/s]\n",
    ],
    ids=["rows", "epochs", "progress bar"],
)
@pytest.mark.parametrize("end", [f"{TRACE}ValueError: no sample\n", "failed (exitcode: -9) local_rank: 1 (pid: 2)\n"])
def test_an_unknown_program_that_trains_on_has_no_end(row: str, end: str, tmp_path: Path) -> None:
    before = f"{START}{row.format(1)}{row.format(2)}{end}"
    code, told = output(tmp_path / "a.log", before + "".join(row.format(number) for number in range(3, 20)))
    assert (code, "TS-TEL-048" in told) == (2, False)
    code, told = output(tmp_path / "b.log", before + row.format(3) * 8)  # of eight ranks that end together
    assert (code, "TS-TEL-048" in told) == (1, True)


def test_the_last_of_chained_exceptions_is_the_end(tmp_path: Path) -> None:
    chain = "\nDuring handling of the above exception, another exception occurred:\n\n"
    _, told = output(tmp_path / "a.log", f"{START}{TRACE}KeyError: 'lr'\n{chain}{TRACE}ValueError: no lr\n")
    assert "the log ends with: ValueError: no lr" in told
    assert "KeyError" not in told


def test_the_exception_of_a_worker_is_the_end(tmp_path: Path) -> None:
    caught = "KeyError: Caught KeyError in DataLoader worker process 0.\nOriginal "
    _, told = output(tmp_path / "a.log", f"{START}{TRACE}{caught}{TRACE}KeyError: 'image'\n")
    assert "the log ends with: KeyError: 'image'" in told


MEGATRON = " iteration {:8d}/      50 | lm loss: {:.6E} | elapsed time per iteration (ms): 1000.0 |\n"
HUGGINGFACE = "{{'loss': {:.4f}, 'grad_norm': 1.5, 'learning_rate': 0.0001, 'epoch': {:.2f}}}\n"
MEMORY = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (MEMORY, 1),
        (f"{TRACE}{MEMORY}srun: error: n1: task 0: Exited with exit code 1\n", 1),
        ("slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2026-01-05T10:00:00 DUE TO TIME LIMIT ***\n", 0),
        ("slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2026-01-05T10:00:00 DUE TO NODE FAILURE ***\n", 1),
        (f"{TRACE}KeyboardInterrupt\n", 0),
        ("Received SIGTERM, exiting\n", 0),
        ("run.sh: line 12:  3312 Terminated              python train.py\n", 0),
        ("MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD\n", 1),
        ("mpirun detected that one or more processes exited with non-zero status, thus causing\n", 1),
        ("Primary job  terminated normally, but 1 process returned\n", 1),
        ("TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.\nExited with exit code 137.\n", 1),
        ("TERM_RUNLIMIT: job killed after reaching LSF run time limit.\n", 0),
    ],
)
def test_a_known_program_that_failed_is_a_finding_and_one_that_was_stopped_is_none(
    tmp_path: Path, text: str, code: int
) -> None:
    steps = "".join(MEGATRON.format(step, 9.5 - step / 10) for step in range(1, 41))
    found, told = output(tmp_path / "a.log", steps + text)
    assert found == code
    assert "the streams state " in told
    assert ("error[TS-TEL-048]" in told) == (code == 1)


def test_a_failure_after_training_is_over_is_none(tmp_path: Path) -> None:
    steps = "".join(MEGATRON.format(step, 9.5 - step / 10) for step in range(1, 51))
    assert output(tmp_path / "a.log", f"{steps}{TRACE}{MEMORY}")[0] == 0
    steps = "".join(HUGGINGFACE.format(4.5 - step / 20, step / 50) for step in range(1, 51))
    over = "{'train_runtime': 99.5, 'train_loss': 2.5, 'epoch': 1.0}\n"
    assert output(tmp_path / "b.log", f"{steps}{over}{TRACE}{MEMORY}")[0] == 0
    assert output(tmp_path / "c.log", f"{steps}{TRACE}{MEMORY}")[0] == 1
    assert output(tmp_path / "d.log", f"{steps}{over}{steps}{TRACE}{MEMORY}")[0] == 1


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2026-01-05T10:00:00 DUE TO TIME LIMIT ***\n", "time_limit"),
        ("slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2026-01-05T10:00:00 DUE TO PREEMPTION ***\n", "preempted"),
        ("TERM_RUNLIMIT: job killed after reaching LSF run time limit.\n", "time_limit"),
    ],
)
@pytest.mark.parametrize("before", [START * 3, "".join(STEP.format(step) for step in range(12))])
def test_a_stop_by_the_scheduler_is_stated_and_no_error(tmp_path: Path, before: str, end: str, words: str) -> None:
    code, told = output(tmp_path / "a.log", before + end)
    assert (code, "error[" in told, f"attempt reason: {words}" in told) == (0, False, True)
    assert ("incomplete" in told.splitlines()[-1]) == (before == START * 3)


def test_one_later_row_of_another_rank_is_no_survival(tmp_path: Path) -> None:
    steps = [STEP.format(step) for step in range(42)]
    text = "".join(steps[:40]) + f"{TRACE}KeyError: 'lr'\n"
    for number, (after, is_failure) in enumerate(
        ((steps[40], True), (steps[40] * 8, True), ("".join(steps[40:]), False))
    ):
        code, told = output(tmp_path / f"{number}.log", text + after, "--format", "concise")
        assert (code, "error[TS-TEL-048] the log ends with: KeyError: 'lr'" in told) == (is_failure, is_failure)


@pytest.mark.parametrize("by", ["", "[rank3]: "])
@pytest.mark.parametrize("before", [START * 3, "".join(STEP.format(step) for step in range(12))])
@pytest.mark.parametrize("cut", ["", "KeyEr", '  File "/srv/lib/to'])
def test_a_log_that_ends_within_a_traceback_is_that_of_a_failure(
    tmp_path: Path, before: str, by: str, cut: str
) -> None:
    lines = [*(before + TRACE).splitlines(keepends=True), *([cut] if cut else [])]
    code, told = output(tmp_path / "a.log", "".join(f"{by}{line}" for line in lines), "--format", "concise")
    line = before.count("\n") + 1
    assert f"a.log:{line}:1: error[TS-TEL-048] the log ends within a traceback, whose exception is cut off" in told
    assert code == 1


@pytest.mark.parametrize("after", ["StopTraining: no more data\n", "StopTraining: no more\n" + "wandb: synced\n" * 9])
def test_a_traceback_whose_exception_has_an_odd_name_is_not_cut_off(tmp_path: Path, after: str) -> None:
    steps = "".join(STEP.format(step) for step in range(12))
    assert "within a traceback" not in output(tmp_path / "a.log", f"{steps}{TRACE}{after}")[1]


@pytest.mark.parametrize("helper", ["run.sh: line 12:  3312 Killed          python monitor.py\n", "Killed\n"])
@pytest.mark.parametrize("steps", ["".join(STEP.format(step) for step in range(12)), OTHER.format(1) + OTHER.format(2)])
@pytest.mark.parametrize(
    "over", ["Training complete!\n", "Finished training in 3 h\n", "2026-01-05 INFO training is done\n"]
)
def test_a_helper_that_is_killed_after_training_is_no_failure(
    tmp_path: Path, steps: str, over: str, helper: str
) -> None:
    assert "TS-TEL-048" not in output(tmp_path / "a.log", f"{steps}{over}{helper}")[1]
    for number, text in enumerate(
        (f"{steps}{helper}", f"{steps}{over}{steps}{helper}", f"{steps}Epoch 3 training complete\n{helper}")
    ):
        assert "error[TS-TEL-048]" in output(tmp_path / f"{number}.log", text, "--format", "concise")[1]


def test_a_kernel_log_is_of_no_program_that_failed(tmp_path: Path) -> None:
    text = "[    9.5] NVRM: Xid (PCI:0000:05:00): 13, Graphics Exception\n[   10.5] slurmd: 1 oom_kill event\n"
    assert "TS-TEL-048" not in output(tmp_path / "a.log", text)[1]
