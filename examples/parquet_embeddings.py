"""Cluster embeddings in a Parquet file and write the labels back beside them.

    python examples/parquet_embeddings.py [--samples 3000]

Embeddings are one column of lists, as pandas, polars and most tools write them. Here they are
synthetic: points near six subspaces of dimension 3 in 32 dimensions.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kscn import KSubspaces, data, metrics


def main() -> None:
    """Write embeddings, cluster the file without loading it whole, add a column of labels."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--samples", type=int, default=3000)
    given = options.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "embeddings.parquet"
        truth = write_embeddings(path, given.samples)

        source = data.load(path).samples  # one row group at a time is read
        model = KSubspaces(n_clusters=6, subspace_dim=3, n_init=2, random_state=0).fit(source)

        labelled = Path(folder) / "labelled.parquet"
        add_labels(path, labelled, model.labels_)

        table = pq.read_table(labelled, columns=["cluster"])
        sizes = np.bincount(table["cluster"].to_numpy())
        print(f"{table.num_rows} rows in clusters of {sizes.tolist()}")
        print(f"ACC {metrics.clustering_accuracy(truth, model.labels_):.1%}")


def write_embeddings(path: Path, count: int) -> np.ndarray:
    """Write a column `embedding` in row groups of 1,000; return which subspace made each row."""
    samples, truth, _ = data.make_union_of_subspaces(count, 6, 32, 3, noise=0.05, random_state=0)
    column = pa.array(list(samples))  # list<float>
    pq.write_table(pa.table({"embedding": column}), path, row_group_size=1000)
    return truth


def add_labels(path: Path, output: Path, labels: np.ndarray) -> None:
    """Copy a file row group by row group, with the cluster of every row."""
    file = pq.ParquetFile(path)
    schema = file.schema_arrow.append(pa.field("cluster", pa.int32()))
    done = 0
    with pq.ParquetWriter(output, schema) as writer:
        for group in range(file.num_row_groups):
            table = file.read_row_group(group)
            part = labels[done : done + table.num_rows]
            done += table.num_rows
            writer.write_table(table.append_column("cluster", pa.array(part, pa.int32())))


if __name__ == "__main__":
    main()
