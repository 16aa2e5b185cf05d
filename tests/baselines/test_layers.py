"""Estimators may start from the clusters of self-expression, which needs no estimator itself."""

import subprocess
import sys


def test_self_expression_loads_no_estimator():
    code = (
        "import sys, kscn.baselines.self_expression; "
        "print(*(name for name in sys.modules if name.startswith('kscn.estimators')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
