"""Tiny logs of every format, made for the tests, and what a reader must find in them."""

# ruff: noqa: E501 (lines as the programs write them)

from __future__ import annotations

import json
import pickle
import sqlite3
import struct
import tempfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import nan
from pathlib import Path

_POLYNOMIAL = 0x82F63B78


@dataclass(frozen=True)
class Sample:
    """Hold a log and what is in it: losses by step of its first run, validation losses in order, number of runs."""

    name: str
    format: str
    content: bytes
    losses: Mapping[int, float]
    validation: tuple[float | None, ...] = ()
    runs: int = 1
    lr: tuple[float, ...] = field(default=())


def text(*lines: str, end: str = "\n") -> bytes:
    return (end.join(lines) + end).encode()


def json_lines(*records: Mapping[str, object]) -> bytes:
    return text(*(json.dumps(record) for record in records))


# TensorBoard: written field by field, with a CRC that is computed bit by bit: the slow, obvious way.


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def block(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def tf_record(event: bytes) -> bytes:
    length = struct.pack("<Q", len(event))
    return length + masked(length) + event + masked(event)


def tf_event(wall: float, step: int, scalars: Mapping[str, float], tensor: bool = False) -> bytes:
    values = b""
    for tag, value in scalars.items():
        figure = struct.pack("<f", value)
        held = block(8, b"\x08\x01" + block(4, figure)) if tensor else b"\x15" + figure
        values += block(1, block(1, tag.encode()) + held)
    counted = b"\x10" + varint(step) if step else b""
    return tf_record(b"\x09" + struct.pack("<d", wall) + counted + block(5, values))


def tf_file(events: Iterable[bytes]) -> bytes:
    return tf_record(b"\x09" + struct.pack("<d", 1.0) + block(3, b"brain.Event:2")) + b"".join(events)


# W&B: a LevelDB log of protobuf records.


def wandb_file(rows: Iterable[Mapping[str, object]], settings: Mapping[str, object] | None = None) -> bytes:
    data = b":W&B" + b"\xe1\xbe\x00"
    config = b"".join(block(1, block(2, name.encode()) + block(16, json.dumps(value).encode())) for name, value in (settings or {}).items())
    records = [block(17, block(1, b"abc") + block(4, config))] if settings else []
    for row in rows:
        items = b"".join(block(1, block(2, name.encode()) + block(16, json.dumps(value).encode())) for name, value in row.items())
        records.append(block(2, items))
    for record in records:
        data = _fragmented(data, record)
    return data


def _fragmented(data: bytes, record: bytes) -> bytes:
    first = True
    while True:
        room = 32768 - len(data) % 32768
        if room < 7:
            data += b"\x00" * room
            continue
        part, record = record[: room - 7], record[room - 7 :]
        kind = (1 if not record else 2) if first else (4 if not record else 3)
        crc = zlib.crc32(part, zlib.crc32(bytes([kind])))
        data += struct.pack("<IHB", crc, len(part), kind) + part
        first = False
        if not record:
            return data


def database(*statements: str, rows: tuple[str, list[tuple[object, ...]]] | None = None) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.db"
        made = sqlite3.connect(path)
        for statement in statements:
            made.execute(statement)
        if rows:
            made.executemany(*rows)
        made.commit()
        made.close()
        return path.read_bytes()


_MLFLOW = "CREATE TABLE metrics (key TEXT, value REAL, timestamp INTEGER, run_uuid TEXT, step INTEGER, is_nan INTEGER)"
_TRACKIO = "CREATE TABLE metrics (id INTEGER PRIMARY KEY, timestamp TEXT, run_name TEXT, step INTEGER, metrics TEXT)"

SAMPLES = (
    Sample(
        "hf_state",
        "HF trainer_state",
        json.dumps(
            {
                "global_step": 30,
                "max_steps": 90,
                "log_history": [
                    {"loss": 2.5, "grad_norm": 1.5, "learning_rate": 5e-5, "epoch": 0.3, "step": 10},
                    {"eval_loss": 2.2, "eval_accuracy": 0.4, "epoch": 0.3, "step": 10},
                    {"loss": 1.9, "grad_norm": 1.1, "learning_rate": 4e-5, "epoch": 0.6, "step": 20},
                    {"train_runtime": 9.0, "train_loss": 2.2, "epoch": 0.6, "step": 20},
                ],
            },
            indent=2,
        ).encode(),
        {10: 2.5, 20: 1.9},
        (2.2,),
        lr=(5e-5, 4e-5),
    ),
    Sample(
        "hf_stdout",
        "HF Trainer output",
        b"  0%|  | 0/30 [00:00<?, ?it/s]\r  3%|# | 1/30 [00:01<00:30, 1.05s/it]\r{'loss': 2.5, 'learning_rate': 5e-05, 'epoch': 0.5}\n"
        b"{'loss': '1.9', 'learning_rate': '4e-05', 'epoch': '1.0'}\n{'eval_loss': '2.2', 'epoch': '1.0'}\n{'loss': 1.5, 'learning_rate': 3e-05, 'epoch': 1.5}\n",
        {0: 2.5, 1: 1.9, 2: 1.5},
        (2.2,),
        lr=(5e-5, 4e-5, 3e-5),
    ),
    Sample(
        "llama_factory",
        "LLaMA-Factory log",
        json_lines(
            {"current_steps": 5, "total_steps": 20, "loss": 2.5, "eval_loss": None, "learning_rate": 1e-4, "elapsed_time": "0:00:05"},
            {"current_steps": 10, "total_steps": 20, "loss": 1.9, "eval_loss": None, "learning_rate": 9e-5, "elapsed_time": "0:00:10"},
            {
                "current_steps": 10,
                "total_steps": 20,
                "loss": None,
                "eval_loss": 2.2,
                "learning_rate": None,
                "elapsed_time": "1 day, 0:00:15",
            },
        ),
        {5: 2.5, 10: 1.9},
        (2.2,),
        lr=(1e-4, 9e-5),
    ),
    Sample(
        "lightning",
        "Lightning metrics.csv",
        text(
            "epoch,lr-Adam,step,train_loss_epoch,train_loss_step,val_loss",
            "0,0.1,49,,2.5,",
            "0,0.1,99,,1.9,",
            "0,,99,,,2.2",
            "0,,99,2.3,,",
            "1,0.05,149,,1.5,",
            end="\r\n",
        ),
        {49: 2.5, 99: 1.9, 149: 1.5},
        (2.2,),
        lr=(0.1, 0.1, 0.05),
    ),
    Sample(
        "keras_csv",
        "Keras CSV",
        text("epoch,accuracy,loss,val_accuracy,val_loss", "0,0.3,2.5,0.4,2.2", "1,0.5,1.9,NA,NA", "0,0.3,2.6,0.3,2.3", end="\r\r\n"),
        {0: 2.5, 1: 1.9},
        (2.2,),
        runs=2,
    ),
    Sample("keras_json", "JSON", b'{"loss": [2.5, 1.9, NaN], "val_loss": [2.2, 2.0, 1.9]}', {0: 2.5, 1: 1.9, 2: nan}, (2.2, 2.0, 1.9)),
    Sample("keras_pickle", "pickled history", pickle.dumps({"loss": [2.5, 1.9], "val_loss": [2.2, 2.0]}), {0: 2.5, 1: 1.9}, (2.2, 2.0)),
    Sample("old_pickle", "pickled history", pickle.dumps({"loss": [2.5, 1.9]}, protocol=2), {0: 2.5, 1: 1.9}),
    Sample(
        "yolo",
        "YOLO results.csv",
        text(
            "epoch,train/box_loss,train/cls_loss,metrics/mAP50(B),metrics/mAP50-95(B),val/box_loss,val/cls_loss,lr/pg0",
            "1,1.5,1.0,0.5,0.4,1.2,1.0,0.01",
            "2,1.25,0.75,0.6,0.45,1.0,1.0,0.02",
        ),
        {1: 2.5, 2: 2.0},
        (2.2, 2.0),
        lr=(0.01, 0.02),
    ),
    Sample(
        "yolov5",
        "YOLO results.csv",
        text(
            "               epoch,      train/box_loss,      train/obj_loss,        val/box_loss,        val/obj_loss,               x/lr0",
            "                   0,                 1.5,                 1.0,                 1.2,                 1.0,                0.01",
            "                   1,                1.25,                0.75,                 1.0,                 nan,                0.02",
        ),
        {0: 2.5, 1: 2.0},
        (2.2, nan),
        lr=(0.01, 0.02),
    ),
    Sample(
        "mmengine",
        "MMEngine scalars",
        json_lines(
            {"lr": 0.01, "data_time": 0.1, "loss": 2.5, "time": 0.5, "epoch": 1, "iter": 50, "step": 50},
            {"lr": 0.02, "data_time": 0.1, "loss": 1.9, "time": 0.5, "epoch": 1, "iter": 100, "step": 100},
            {"coco/AP": 0.3, "coco/AP (M)": -1.0, "data_time": 0.1, "time": 0.5, "step": 1},
        ),
        {50: 2.5, 100: 1.9},
        (None,),
        lr=(0.01, 0.02),
    ),
    Sample(
        "mmcv",
        "MMCV log",
        json_lines(
            {"env_info": "linux", "seed": 0},
            {"mode": "train", "epoch": 1, "iter": 50, "lr": 0.01, "loss": 2.5, "time": 0.5},
            {"mode": "train", "epoch": 1, "iter": 100, "lr": 0.02, "loss": 1.9, "time": 0.5},
            {"mode": "val", "epoch": 1, "iter": 10, "bbox_mAP": 0.1},
            {"mode": "train", "epoch": 2, "iter": 50, "lr": 0.02, "loss": 1.5, "time": 0.5},
        ),
        {50: 2.5, 100: 1.9, 151: 1.5},
        (None,),
        lr=(0.01, 0.02, 0.02),
    ),
    Sample(
        "detectron2",
        "Detectron2 metrics",
        json_lines(
            {"iteration": 19, "total_loss": 2.5, "loss_cls": 1.0, "lr": 0.01, "time": 0.5, "data_time": 0.1},
            {"iteration": 39, "total_loss": 1.9, "loss_cls": 0.9, "lr": 0.02, "time": 0.5, "data_time": 0.1, "bbox/AP": 20.0},
        ),
        {19: 2.5, 39: 1.9},
        (None,),
        lr=(0.01, 0.02),
    ),
    Sample(
        "detr_lines",
        "DETR log",
        json_lines(
            {"train_lr": 1e-4, "train_loss": 2.5, "train_loss_ce": 1.0, "test_loss": 2.2, "test_coco_eval_bbox": [0.1, 0.2], "epoch": 0},
            {"train_lr": 1e-4, "train_loss": 1.9, "train_loss_ce": 0.9, "test_loss": 2.0, "test_coco_eval_bbox": [0.2, 0.3], "epoch": 1},
        ),
        {0: 2.5, 1: 1.9},
        (2.2, 2.0),
        lr=(1e-4, 1e-4),
    ),
    Sample(
        "metric_logger",
        "MetricLogger output",
        text(
            "Epoch: [0]  [0/2]  eta: 0:00:11  lr: 0.000100  loss: 2.5000 (2.5000)  loss_ce: 1.0 (1.0)  time: 0.5  data: 0.1  max mem: 99",
            "Epoch: [0]  [1/2]  eta: 0:00:03  lr: 0.000100  loss: 1.9000 (2.2000)  loss_ce: 0.9 (1.0)  time: 0.5  data: 0.1  max mem: 99",
            "Averaged stats: lr: 0.000100  loss: 1.9000 (2.2000)  loss_ce: 0.9 (1.0)",
            "Test:  [0/9]  eta: 0:00:07  loss: 3.0 (3.0)  time: 0.5  data: 0.1",
            "Averaged stats: loss: 2.1000 (2.2000)",
            "Epoch: [1]  [0/2]  eta: 0:00:11  lr: 0.000100  loss: 1.5000 (1.5000)  time: 0.5  data: 0.1  max mem: 99",
        ),
        {0: 2.5, 1: 1.9, 2: 1.5},
        (2.2,),
        lr=(1e-4, 1e-4, 1e-4),
    ),
    Sample(
        "fairseq",
        "fairseq output",
        text(
            "2023-06-28 18:47:40 | INFO | train_inner | epoch 001:    100 / 900 loss=2.5, ppl=5.6, wps=122762, ups=0.2, num_updates=100, lr=0.0001, gnorm=3.1, clip=0, loss_scale=8, train_wall=213, wall=815",
            "2023-06-28 18:48:40 | INFO | train_inner | epoch 001:    200 / 900 loss=1.9, ppl=3.7, wps=122762, ups=0.2, num_updates=200, lr=0.0002, gnorm=2.1, clip=0, loss_scale=8, train_wall=213, wall=999",
            "2023-06-28 18:49:00 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 2.2 | ppl 4.6 | num_updates 200 | best_loss 2.2",
            "2023-06-28 18:49:10 | INFO | train | epoch 001 | loss 2.3 | ppl 4.9 | num_updates 200 | lr 0.0002 | gnorm 2.5",
        ),
        {100: 2.5, 200: 1.9},
        (2.2,),
    ),
    Sample(
        "espnet",
        "ESPnet log",
        text(
            "[host] 2023-01-01 00:00:00,000 (trainer:338) INFO: 1epoch results: [train] iter_time=0.01, loss_ctc=3.1, loss=2.5, acc=0.3, optim0_lr0=1e-04, train_time=1.0, time=10 minutes, total_count=1000, [valid] loss_ctc=3.0, loss=2.2, acc=0.4, time=30 seconds, total_count=100",
            "[host] 2023-01-01 01:00:00,000 (trainer:338) INFO: 2epoch results: [train] iter_time=0.01, loss_ctc=2.1, loss=1.9, acc=0.4, optim0_lr0=2e-04, train_time=1.0, time=10 minutes, total_count=2000, [valid] loss_ctc=2.0, loss=2.0, acc=0.5, time=30 seconds, total_count=200",
        ),
        {1: 2.5, 2: 1.9},
        (2.2, 2.0),
        lr=(1e-4, 2e-4),
    ),
    Sample(
        "joeynmt",
        "JoeyNMT log",
        text(
            "2021-10-20 14:16:28,090 - INFO - joeynmt.training - Epoch   1, Step:      100, Batch Loss:     2.500000, Tokens per Sec:     1235, Lr: 0.000100",
            "2021-10-20 14:17:28,090 - INFO - joeynmt.training - Epoch   1, Step:      200, Batch Loss:     1.900000, Tokens per Sec:     1235, Lr: 0.000100",
            "2021-10-20 14:17:29,129 - INFO - joeynmt.training - Validation result (greedy) at epoch   1, step      200: bleu:   1.56, loss: 149740.7500, ppl:   9.0250, duration: 202.0244s",
            "2021-10-20 14:17:30,129 - INFO - joeynmt.training - \tHypothesis: verse 3 loss 9 . then 40",
        ),
        {100: 2.5, 200: 1.9},
        (2.2,),
        lr=(1e-4, 1e-4),
    ),
    Sample(
        "nanogpt",
        "nanoGPT output",
        text(
            "step 0: train loss 2.5500, val loss 2.6000",
            "iter 0: loss 2.5000, time 18034.12ms, mfu -100.00%",
            "iter 10: loss 1.9000, time 402.10ms, mfu 31.22%",
            "step 20: train loss 1.9500, val loss 2.2000",
        ),
        {0: 2.5, 10: 1.9},
        (2.6, 2.2),
    ),
    Sample(
        "build_nanogpt",
        "build-nanogpt output",
        text(
            "validation loss: 2.6000",
            "HellaSwag accuracy: 2497/10042=0.2487",
            "step     0 | loss: 2.500000 | lr 1.0000e-06 | norm: 15.3420 | dt: 19277.96ms | tok/sec: 27196.24",
            "rank 0 sample 0: a language model, step 3 | and so on",
            "step     1 | loss: 1.900000 | lr 2.0000e-06 | norm: 14.8631 | dt: 395.86ms | tok/sec: 1324436.75",
        ),
        {0: 2.5, 1: 1.9},
        (2.6,),
        lr=(1e-6, 2e-6),
    ),
    Sample(
        "llmc",
        "llm.c log",
        text("s:0 tel:2.6000", "s:0 trl:2.5000 lr:0.000001 norm:15.21", "s:1 trl:1.9000 lr:0.000002 norm:14.80", "s:1 tel:2.2000"),
        {0: 2.5, 1: 1.9},
        (2.6, 2.2),
        lr=(1e-6, 2e-6),
    ),
    Sample(
        "modded_nanogpt",
        "modded-nanogpt log",
        text(
            'print0(f"step:{step}/{n} val_loss:{val_loss:.4f} step_avg:{avg:.2f}ms")',
            "====================",
            "step:0/5100 val_loss:2.6000 train_time:249ms step_avg:nanms",
            "step:1/5100 train_loss:2.5000 train_time:7919ms step_avg:nanms",
            "step:2/5100 train_loss:1.9000 train_time:8212ms step_avg:385.70ms",
            "step:2/5100 val_loss:2.2000 train_time:8212ms step_avg:385.70ms",
        ),
        {1: 2.5, 2: 1.9},
        (2.6, 2.2),
    ),
    Sample(
        "torchtune",
        "torchtune log",
        text(
            "Step 1 | loss:2.5 lr:1e-05 grad_norm:3.1 tokens_per_second_per_gpu:812.1 ",
            "Step 2 | loss:1.9 lr:2e-05 grad_norm:2.9 tokens_per_second_per_gpu:820.0 ",
        ),
        {1: 2.5, 2: 1.9},
        lr=(1e-5, 2e-5),
    ),
    Sample(
        "torchtitan",
        "torchtitan output",
        text(
            "[titan] 2025-05-01 10:00:00,000 - root - INFO - \x1b[31mstep:  1  \x1b[32mloss: 2.50000  \x1b[38;2;180;60;0mgrad_norm:  4.1234  \x1b[36mmemory: 30.10GiB(37.98%)  \x1b[34mtps: 1,234  \x1b[35mmfu: 5.74%\x1b[39m",
            "[titan] 2025-05-01 10:00:01,000 - root - INFO - \x1b[31mstep:  2  \x1b[32mloss: 1.90000  \x1b[38;2;180;60;0mgrad_norm:  3.1234  \x1b[36mmemory: 30.10GiB(37.98%)  \x1b[34mtps: 1,235  \x1b[35mmfu: 5.74%\x1b[39m",
        ),
        {1: 2.5, 2: 1.9},
    ),
    Sample(
        "megatron",
        "Megatron or DeepSpeed output",
        text(
            "[default3]: iteration      100/  2968 | consumed samples:       102400 | elapsed time per iteration (ms): 349.1 | learning rate: 1.000E-06 | global batch size:  1024 | lm loss: 2.500000E+00 | loss scale: 4096.0 | grad norm: 13.038 | number of skipped iterations:   3 | number of nan iterations:   0 |",
            "[default3]: iteration      200/  2968 | consumed samples:       204800 | elapsed time per iteration (ms): 349.1 | learning rate: 2.000E-06 | global batch size:  1024 | lm loss: 1.900000E+00 | loss scale: 4096.0 | grad norm: 3.038 | number of skipped iterations:   3 | number of nan iterations:   0 |",
            " validation loss at iteration 200 | lm loss value: 2.200E+00 | lm loss PPL: 9.025E+00 |",
        ),
        {100: 2.5, 200: 1.9},
        (2.2,),
        lr=(1e-6, 2e-6),
    ),
    Sample(
        "fastai",
        "fastai history",
        text(
            "epoch,train_loss,valid_loss,accuracy,time",
            "0,2.5,2.2,0.6,00:41",
            "1,1.9,2.0,0.7,00:40",
            "epoch,train_loss,valid_loss,accuracy,time",
            "0,1.8,1.9,0.7,00:40",
        ),
        {0: 2.5, 1: 1.9},
        (2.2, 2.0),
        runs=2,
    ),
    Sample(
        "wandb",
        "W&B run",
        wandb_file([{"train/loss": 2.5, "lr": 0.1, "_step": 0}, {"train/loss": 1.9, "lr": 0.2, "val/loss": 2.2, "_step": 10}], {"lr": 0.1}),
        {0: 2.5, 10: 1.9},
        (2.2,),
        lr=(0.1, 0.2),
    ),
    Sample(
        "wandb_export",
        "W&B export",
        text(
            '"Step","run - train/loss","run - train/loss__MIN","run - train/loss__MAX"', '"0","2.5","2.4","2.6"', '"10","1.9","1.8","2.0"'
        ),
        {0: 2.5, 10: 1.9},
    ),
    Sample(
        "mlflow_db",
        "MLflow database",
        database(
            _MLFLOW,
            rows=(
                "INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)",
                [
                    ("train_loss", 2.5, 1, "r", 0, 0),
                    ("val_loss", 2.2, 1, "r", 0, 0),
                    ("train_loss", 1.9, 2, "r", 1, 0),
                    ("val_loss", 0.0, 2, "r", 1, 1),
                ],
            ),
        ),
        {0: 2.5, 1: 1.9},
        (2.2, nan),
    ),
    Sample(
        "trackio",
        "Trackio database",
        database(
            _TRACKIO,
            rows=(
                "INSERT INTO metrics (run_name, step, metrics) VALUES (?, ?, ?)",
                [("r", 0, '{"loss": 2.5, "lr": 0.1}'), ("r", 1, '{"loss": 1.9, "lr": 0.2}')],
            ),
        ),
        {0: 2.5, 1: 1.9},
        lr=(0.1, 0.2),
    ),
    Sample("mlflow_metric", "MLflow file store", text("1773124983070 2.5 0", "1773124993070 1.9 1"), {}),
    Sample(
        "tensorboard",
        "TensorBoard events",
        tf_file(
            [
                tf_event(10.0, 5, {"train_loss": 2.5}),
                tf_event(10.1, 5, {"lr": 0.5}),
                tf_event(11.0, 300, {"train_loss": 1.75}),
                tf_event(11.1, 300, {"val_loss": 2.25}, tensor=True),
            ]
        ),
        {5: 2.5, 300: 1.75},
        (2.25,),
        lr=(0.5,),
    ),
    Sample(
        "word_language_model",
        "word_language_model output",
        text(
            "| epoch   1 |   200/  500 batches | lr 20.00 | ms/batch 11.61 | loss  2.50 | ppl    12.18",
            "| epoch   1 |   400/  500 batches | lr 20.00 | ms/batch 11.61 | loss  1.90 | ppl     6.69",
            "-" * 40,
            "| end of epoch   1 | time: 35.58s | valid loss  2.20 | valid ppl     9.03",
            "| epoch   2 |   200/  500 batches | lr 5.00 | ms/batch 11.61 | loss   nan | ppl      nan",
        ),
        {200: 2.5, 400: 1.9, 700: nan},
        (2.2,),
        lr=(20.0, 20.0, 5.0),
    ),
    Sample(
        "basicsr",
        "BasicSR log",
        text(
            "2025-02-04 22:37:09,911 INFO: [basel..][epoch:  0, iter:     100, lr:(1.000e-05,)] [eta: 4:06:17, time (data): 1.663 (0.247)] l_pix: 2.5000e+00 l_g: 1.0e-01 ",
            "2025-02-04 22:39:52,309 INFO: [basel..][epoch:  1, iter:   1,200, lr:(2.000e-05,)] [eta: 4:29:23, time (data): 1.643 (0.250)] l_pix: 1.9000e+00 l_g: 1.0e-01 ",
            "\t # psnr: 27.1000\tBest: 27.1000 @ 1200 iter",
        ),
        {},
        (None,),
        lr=(1e-5, 2e-5),
    ),
    Sample(
        "tqdm",
        "progress bars",
        b"Epoch 1:  10%|#    | 10/100 [00:01<00:09, 9.8it/s, loss=2.5]\rEpoch 1:  10%|#    | 10/100 [00:01<00:09, 9.8it/s, loss=2.5]\rEpoch 1:  20%|##   | 20/100 [00:02<00:08, 9.9it/s, loss=1.9]\r",
        {10: 2.5, 20: 1.9},
    ),
    Sample(
        "keras_stdout",
        "Keras output",
        text(
            "Epoch 1/20",
            "9/469 [>.....] - ETA: 9s - loss: 2.9 - accuracy: 0.1",
            "469/469 [=====] - 2s 4ms/step - loss: 2.5 - accuracy: 0.3 - val_loss: 2.2",
            "Epoch 2/20",
            "469/469 [=====] - 2s 4ms/step - loss: 1.9 - accuracy: 0.5 - val_loss: 2.0",
        ),
        {1: 2.5, 2: 1.9},
        (2.2, 2.0),
    ),
    Sample("csv", "CSV", text("step;loss;lr", "10;2.5;0.1", "20;1.9;0.2"), {10: 2.5, 20: 1.9}, lr=(0.1, 0.2)),
    Sample("tsv", "CSV", text("# a comment", "iteration\ttraining loss", "10\t2.5", "20\t1.9"), {10: 2.5, 20: 1.9}),
    Sample(
        "json_lines",
        "JSON lines",
        json_lines({"global_step": 10, "train": {"loss": 2.5}}, {"global_step": 20, "train": {"loss": "NaN"}}),
        {10: 2.5, 20: nan},
    ),
    Sample(
        "json_records",
        "JSON",
        b'[{"epoch": 1, "main/loss": 2.5, "validation/main/loss": 2.2}, {"epoch": 2, "main/loss": 1.9, "validation/main/loss": 2.0}]',
        {1: 2.5, 2: 1.9},
        (2.2, 2.0),
    ),
    Sample(
        "plain",
        "text",
        text(
            "2025-10-27 21:02:24,983 - INFO - Epoch [1/100], Train Loss: 2.5, Train Acc: 0.1100, Val Loss: 2.2, Val Acc: 0.0333",
            "2025-10-27 21:03:24,983 - INFO - Epoch [2/100], Train Loss: 1.9, Train Acc: 0.2, Val Loss: 2.0, Val Acc: 0.1",
        ),
        {1: 2.5, 2: 1.9},
        (2.2, 2.0),
    ),
    Sample(
        "headings",
        "text",
        text(
            "[03.24.23|09:56:11] Parameters:",
            "{'num_class': 400, 'num_epoch': 50}",
            "[03.24.23|09:56:11] Training epoch: 0",
            "[03.24.23|09:56:31] \tmean_loss: 2.5",
            "[03.24.23|09:56:31] Eval epoch: 0",
            "[03.24.23|09:58:13] \tmean_loss: 2.2",
            "[03.24.23|09:58:13] \tTop1: 10.00%",
            "[03.24.23|09:58:13] Training epoch: 1",
            "[03.24.23|09:58:33] \tmean_loss: 1.9",
        ),
        {0: 2.5, 1: 1.9},
        (2.2,),
    ),
    Sample(
        "marian",
        "Marian log",
        text(
            "[2018-12-01 23:05:41] Ep. 1 : Up. 100 : Sen. 98,412 : Cost 2.50 : Time 410.2s : 5120.3 words/s",
            "[2018-12-01 23:15:41] Ep. 1 : Up. 200 : Sen. 98,412 : Cost 1.90 : Time 410.2s : 5120.3 words/s",
            "[2018-12-01 23:55:41] [valid] Ep. 1 : Up. 200 : cross-entropy : 2.2 : new best",
        ),
        {100: 2.5, 200: 1.9},
        (2.2,),
    ),
    Sample(
        "mlx",
        "MLX-LM output",
        text(
            "Iter 1: Val loss 2.6, Val took 3.707s",
            "Iter 5: Train loss 2.5, Learning Rate 1.000e-04, It/sec 3.158, Tokens/sec 599.660, Peak mem 8.219 GB",
            "Iter 10: Train loss 1.9, Learning Rate 2.000e-04, It/sec 3.158, Tokens/sec 599.660, Peak mem 8.219 GB",
        ),
        {5: 2.5, 10: 1.9},
        (2.6,),
        lr=(1e-4, 2e-4),
    ),
)
SAMPLE = {sample.name: sample for sample in SAMPLES}
