#!/usr/bin/python3
"""Trains the digit recogniser of the quickstart and writes, beside this script:

  digits.onnx                input "image" float32 [N,1,8,8], pixels 0..16; output "probabilities" float32 [N,10]
  heldout_images.npy         float32 [360,1,8,8]: images that no step of the training has seen
  heldout_labels.npy         int64 [360]
  heldout_probabilities.npy  float32 [360,10]: what the trained network itself answers for them

Needs Debian's python3-torch (1.13) and python3-onnx. The data is scikit-learn's digits.csv.gz, taken from
--csv FILE, from an installed python3-sklearn, or from its Debian package, fetched and unpacked without
installing it (it cannot be installed beside libboost1.81-dev). Ten seconds on one core; see README.md.
"""
import argparse
import glob
import gzip
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import torch
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))
INSIDE_PACKAGE = "usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz"
SPLIT_SEED = 1797  # chooses the kept-out images
TRAIN_SEED = 8     # first weights, order of the batches, shifts, dropout
HELD_OUT = 360     # of 1797: one in five
EPOCHS = 60
BATCH = 64


def read_csv(path):
    """Returns images float32 [n,1,8,8] in 0..16 and labels int64 [n]."""
    with gzip.open(path, "rt") as file:
        rows = np.loadtxt(file, delimiter=",")
    if rows.shape != (1797, 65) or rows[:, :64].min() != 0 or rows[:, :64].max() != 16:
        sys.exit(f"{path}: shape {rows.shape}, want (1797, 65) with pixels 0..16 and a label")
    return rows[:, :64].reshape(-1, 1, 8, 8).astype(np.float32), rows[:, 64].astype(np.int64)


def load(csv):
    installed = "/" + INSIDE_PACKAGE
    if csv or os.path.exists(installed):
        return read_csv(csv or installed)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", "python3-sklearn"],
                       cwd=folder, check=True)
        package, = glob.glob(os.path.join(folder, "*.deb"))
        subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
        return read_csv(os.path.join(folder, INSIDE_PACKAGE))


class Digits(nn.Module):
    """Raw pixels to probabilities. The scale is part of the model, so a caller passes the image as it is."""

    def __init__(self):
        super().__init__()
        for name, inputs, outputs in ("1", 1, 16), ("2", 16, 32), ("3", 32, 32):
            self.add_module("conv" + name, nn.Conv2d(inputs, outputs, 3, padding=1, bias=False))
            self.add_module("norm" + name, nn.BatchNorm2d(outputs))
        self.relu, self.pool, self.flatten = nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
        self.hidden, self.dropout, self.digit = nn.Linear(128, 64), nn.Dropout(0.3), nn.Linear(64, 10)

    def logits(self, pixels):
        x = self.relu(self.norm1(self.conv1(pixels / 16.0)))
        x = self.pool(self.relu(self.norm2(self.conv2(x))))  # 8x8 -> 4x4
        x = self.pool(self.relu(self.norm3(self.conv3(x))))  # 4x4 -> 2x2
        return self.digit(self.dropout(self.relu(self.hidden(self.flatten(x)))))

    def forward(self, pixels):
        return torch.softmax(self.logits(pixels), dim=1)


def shifted(images):
    """Moves each image by up to one pixel in each direction; empty pixels come in."""
    padded = nn.functional.pad(images, (1, 1, 1, 1))
    moved = torch.empty_like(images)
    for i, (y, x) in enumerate(torch.randint(0, 3, (len(images), 2)).tolist()):
        moved[i] = padded[i, :, y:y + 8, x:x + 8]
    return moved


def train(images, labels, progress=print):
    torch.manual_seed(TRAIN_SEED)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)  # one order of additions
    model = Digits()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    steps = -(-len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, epochs=EPOCHS, steps_per_epoch=steps)
    loss_of = nn.CrossEntropyLoss(label_smoothing=0.05)
    for epoch in range(EPOCHS):
        total = 0.0
        for batch in torch.randperm(len(images)).split(BATCH):
            loss = loss_of(model.logits(shifted(images[batch])), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() * len(batch)
        if epoch % 10 == 9:
            progress(f"epoch {epoch + 1:3}: loss {total / len(images):.4f}")
    return model.eval()


def export(model, path):
    # PRESERVE keeps BatchNormalization as a node of its own: folding it into Conv is left to who runs the model.
    torch.onnx.export(model, torch.zeros(2, 1, 8, 8), path, opset_version=13, input_names=["image"],
                      output_names=["probabilities"], training=torch.onnx.TrainingMode.PRESERVE,
                      do_constant_folding=False,
                      dynamic_axes={"image": {0: "N"}, "probabilities": {0: "N"}})
    onnx.checker.check_model(onnx.load(path))


def answer(model, images):
    with torch.no_grad():
        return model(torch.from_numpy(images)).numpy()


def cross_validate(images, labels, order):
    """Keeps each fifth out in turn: every image is judged once by a model that has not seen it."""
    total = 0
    for i, held in enumerate(np.array_split(order, 5)):
        kept = order[~np.isin(order, held)]
        model = train(torch.from_numpy(images[kept]), torch.from_numpy(labels[kept]), progress=lambda _: None)
        right = int((answer(model, images[held]).argmax(1) == labels[held]).sum())
        total += right
        print(f"fold {i + 1}: {right} of {len(held)} right", flush=True)
    print(f"all folds: {total} of {len(order)} right, {100 * total / len(order):.2f} %")


def main():
    parser = argparse.ArgumentParser(description="Trains the digit recogniser and writes digits.onnx.")
    parser.add_argument("--csv", help="scikit-learn's digits.csv.gz (default: find or fetch it)")
    parser.add_argument("--out", default=HERE, help="folder to write to (default: beside this script)")
    parser.add_argument("--folds", choices=["mixed", "blocks"], help="only measure, write nothing: cross-validate in "
                        "five folds, of mixed images or of consecutive ones (one writer's images stand together)")
    args = parser.parse_args()

    images, labels = load(args.csv)
    order = np.random.RandomState(SPLIT_SEED).permutation(len(images))
    if args.folds:
        return cross_validate(images, labels, order if args.folds == "mixed" else np.arange(len(images)))

    held, kept = order[:HELD_OUT], order[HELD_OUT:]
    model = train(torch.from_numpy(images[kept]), torch.from_numpy(labels[kept]))
    answers = answer(model, images[held])
    right = int((answers.argmax(1) == labels[held]).sum())
    print(f"held out: {right} of {HELD_OUT} right, {100 * right / HELD_OUT:.2f} %")

    os.makedirs(args.out, exist_ok=True)
    export(model, os.path.join(args.out, "digits.onnx"))
    np.save(os.path.join(args.out, "heldout_images.npy"), images[held])
    np.save(os.path.join(args.out, "heldout_labels.npy"), labels[held])
    np.save(os.path.join(args.out, "heldout_probabilities.npy"), answers)


if __name__ == "__main__":
    main()
