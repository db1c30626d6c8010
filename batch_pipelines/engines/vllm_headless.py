"""Starts vLLM without its API server, as a node that is not the first of an engine over several nodes.

    python -P vllm_headless.py --headless ...arguments of vLLM's API server...

vLLM does so in `vllm serve --headless` only. Its build for CPUs has no working `vllm` command: that asks for
the version of a distribution named `vllm`. This goes the same way from the arguments to vLLM's own
`run_headless`, and nothing more.
"""


def main() -> None:
    """Run this node's part until the engine ends."""
    from vllm.entrypoints.cli.serve import run_headless
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
    from vllm.entrypoints.serve.utils.api_utils import cli_env_setup
    from vllm.logger import configure_logging_from_args
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    cli_env_setup()  # type: ignore[no-untyped-call]
    args = make_arg_parser(FlexibleArgumentParser()).parse_args()  # type: ignore[no-untyped-call]
    configure_logging_from_args(args)
    validate_parsed_serve_args(args)
    args.api_server_count = 0
    run_headless(args)


if __name__ == "__main__":  # its workers import this file again
    main()
