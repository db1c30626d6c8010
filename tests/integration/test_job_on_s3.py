"""A whole job through Dagster with its state, input and output on S3, and no shared disk."""

import gzip

import dagster as dg
import orjson

from batch_pipelines.definitions import build_defs
from batch_pipelines.run_config import ASSET, JOB, PARTITION_TAG
from batch_pipelines.settings import Settings
from tests.support.deployment import chats
from tests.support.s3 import S3Server


def test_job_reads_and_writes_s3_and_leaves_no_unfinished_upload(s3: S3Server) -> None:
    bucket = "whole-job"
    s3.create_bucket(bucket)
    client = s3.client()
    lines = b"".join(orjson.dumps(item) + b"\n" for item in [*chats(300, "item"), {"messages": 3}])
    client.put_object(Bucket=bucket, Key="in/items.jsonl.gz", Body=gzip.compress(lines))
    settings = Settings(
        engine="fake", store=f"s3://{bucket}/jobs", storage_roots=[f"s3://{bucket}/in", f"s3://{bucket}/out"]
    )
    request = {
        "input_data_path": f"s3://{bucket}/in/items.jsonl.gz",
        "output_data_path": f"s3://{bucket}/out/answers.jsonl",
        "model_config": {"model": "fake"},
        "data_parallelism": 2,
    }
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("batch_requests", ["on-s3"])
        result = (
            build_defs(settings)
            .resolve_job_def(JOB)
            .execute_in_process(
                instance=instance,
                partition_key="on-s3",
                tags={PARTITION_TAG: "on-s3"},
                run_config={
                    "ops": {ASSET: {"config": request}},
                    "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
                },
            )
        )
    assert result.success
    output = client.get_object(Bucket=bucket, Key="out/answers.jsonl")["Body"].read()
    records = [orjson.loads(line) for line in output.splitlines()]
    assert [record.get("custom_id") for record in records] == [*range(300), None]
    errors = client.get_object(Bucket=bucket, Key="out/answers.jsonl.errors.jsonl")["Body"].read()
    assert [orjson.loads(line)["index"] for line in errors.splitlines()] == [300]
    assert not s3.unfinished_uploads(bucket)
    keys = s3.keys(bucket)
    assert {key for key in keys if key.startswith("out/")} == {
        "out/answers.jsonl",
        "out/answers.jsonl.errors.jsonl",
    }
    assert "jobs/on-s3/summary.json" in keys
