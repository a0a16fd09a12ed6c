"""The input pipeline of `benchmarks.tfdata`: pictures in TFRecord files, decoded and resized.

The same function for everybody: a file to a ``tf.data.Dataset`` of batches. Needs TensorFlow.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

BATCH = 32
PLACES = 8
"""Random crops have so many places: what is drawn is a function of the picture's number."""


def write_files(folder: Path, files: int, pictures: int) -> list[str]:
    """TFRecord files of JPEG pictures that are numbered through."""
    import tensorflow as tf
    from PIL import Image

    y, x = np.mgrid[0:375, 0:500]
    noise = np.random.default_rng(0).normal(0, 8, (375, 500, 3))
    waves = [np.sin(x / f) * 90 + np.cos(y / g) * 30 + 128 for f, g in ((9, 5), (21, 13), (5, 31))]
    packed = io.BytesIO()
    picture = np.clip(np.stack(waves, -1) + noise, 0, 255).astype(np.uint8)
    Image.fromarray(picture).save(packed, "JPEG", quality=90)
    named = [str(folder / f"{file:03d}.tfrecord") for file in range(files)]
    for file, name in enumerate(named):
        with tf.io.TFRecordWriter(name) as writer:
            for number in range(file * pictures, (file + 1) * pictures):
                features = {
                    "number": tf.train.Feature(int64_list=tf.train.Int64List(value=[number])),
                    "jpeg": tf.train.Feature(
                        bytes_list=tf.train.BytesList(value=[packed.getvalue()])
                    ),
                }
                example = tf.train.Example(features=tf.train.Features(feature=features))
                writer.write(example.SerializeToString())
    return named


def parse(record: Any) -> dict[str, Any]:
    """One picture of 224x224, and its number."""
    import tensorflow as tf

    found = tf.io.parse_single_example(
        record,
        {
            "number": tf.io.FixedLenFeature([], tf.int64),
            "jpeg": tf.io.FixedLenFeature([], tf.string),
        },
    )
    place = tf.cast(found["number"] % PLACES, tf.int32) * 10
    window = tf.stack([place, place, 290, 290])
    picture = tf.image.decode_and_crop_jpeg(found["jpeg"], window, channels=3)
    small = tf.image.resize(picture, (224, 224))
    return {"number": found["number"], "picture": tf.cast(small, tf.uint8)}


def make_dataset(file: Any) -> Any:
    """The batches of a file."""
    import tensorflow as tf

    return tf.data.TFRecordDataset(file).map(parse, num_parallel_calls=1).batch(BATCH)
