"""What of our environment an engine sees."""

from __future__ import annotations

from batch_pipelines.engines.environment import engine_environment


def test_what_loading_a_model_takes_is_passed_on() -> None:
    ours = {"PATH": "/bin", "HF_HOME": "/hf", "AWS_ENDPOINT_URL": "http://s3", "OMP_NUM_THREADS": "1"}
    assert ours.items() <= engine_environment(ours, {}).items()


def test_everything_else_is_withheld() -> None:
    ours = {
        "DAGSTER_HOME": "/d",
        "DATABASE_URL": "postgres://u:p@h/d",
        "OPENAI_API_KEY": "sk",
        "PYTHONPATHX": "",
    }
    assert not ours.keys() & engine_environment(ours, {}).keys()


def test_variables_that_would_change_how_the_server_answers_us_are_withheld() -> None:
    ours = {"VLLM_API_KEY": "k", "VLLM_PORT": "tcp://10.0.0.1:80", "PYTHONDONTWRITEBYTECODE": "1"}
    assert not ours.keys() & engine_environment(ours, {}).keys()


def test_usage_reports_are_off_and_the_deployment_has_the_last_word() -> None:
    made = engine_environment({"VLLM_NO_USAGE_STATS": "0"}, {"NO_COLOR": "", "VLLM_CPU_KVCACHE_SPACE": "1"})
    assert made["VLLM_NO_USAGE_STATS"] == made["DO_NOT_TRACK"] == "1"
    assert made["NO_COLOR"] == ""
    assert made["VLLM_CPU_KVCACHE_SPACE"] == "1"
