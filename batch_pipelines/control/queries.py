"""The GraphQL documents this package sends. Text only; `DagsterClient` says what their answers mean."""

from typing import Final

_RUN_FIELDS: Final = """
fragment RunFields on Run {
  runId status jobName creationTime startTime endTime
  tags { key value }
  assetSelection { path }
}
"""

VERSION: Final = "query Version { version }"

JOB_TAGS: Final = """
query JobTags($selector: PipelineSelector!) {
  pipelineOrError(params: $selector) {
    __typename
    ... on Pipeline { tags { key value } }
    ... on Error { message }
  }
}
"""

LOCATION: Final = """
query Location($name: String!) {
  workspaceLocationEntryOrError(name: $name) {
    __typename
    ... on WorkspaceLocationEntry {
      loadStatus
      locationOrLoadError { __typename ... on PythonError { message } }
    }
    ... on PythonError { message }
  }
}
"""

DAEMONS: Final = """
query Daemons {
  instance { daemonHealth { allDaemonStatuses { daemonType required healthy lastHeartbeatTime } } }
}
"""

ADD_PARTITION: Final = """
mutation AddPartition($repository: RepositorySelector!, $definition: String!, $key: String!) {
  addDynamicPartition(repositorySelector: $repository, partitionsDefName: $definition, partitionKey: $key) {
    __typename
    ... on Error { message }
  }
}
"""

DELETE_PARTITION: Final = """
mutation DeletePartition($repository: RepositorySelector!, $definition: String!, $key: String!) {
  deleteDynamicPartitions(
    repositorySelector: $repository, partitionsDefName: $definition, partitionKeys: [$key]
  ) {
    __typename
    ... on Error { message }
  }
}
"""

LAUNCH: Final = """
mutation Launch($params: ExecutionParams!) {
  launchRun(executionParams: $params) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on RunConfigValidationInvalid {
      errors {
        __typename message
        stack {
          entries {
            ... on EvaluationStackPathEntry { fieldName }
            ... on EvaluationStackListItemEntry { listIndex }
            ... on EvaluationStackMapKeyEntry { mapKey }
            ... on EvaluationStackMapValueEntry { mapKey }
          }
        }
        ... on FieldNotDefinedConfigError { fieldName }
        ... on FieldsNotDefinedConfigError { fieldNames }
        ... on MissingFieldConfigError { field { name } }
        ... on MissingFieldsConfigError { fields { name } }
      }
    }
    ... on Error { message }
  }
}
"""

RUNS: Final = (
    """
query Runs($filter: RunsFilter, $cursor: String, $limit: Int) {
  runsOrError(filter: $filter, cursor: $cursor, limit: $limit) {
    __typename
    ... on Runs { results { ...RunFields } }
    ... on Error { message }
  }
}
"""
    + _RUN_FIELDS
)

RUN: Final = (
    """
query Run($id: ID!) {
  runOrError(runId: $id) {
    __typename
    ... on Run { ...RunFields runConfig stepStats { stepKey status startTime endTime } }
    ... on Error { message }
  }
}
"""
    + _RUN_FIELDS
)

FAILURES: Final = """
query Failures($id: ID!, $cursor: String) {
  logsForRun(runId: $id, afterCursor: $cursor, limit: 1000) {
    __typename
    ... on EventConnection {
      cursor hasMore
      events {
        __typename
        ... on ExecutionStepFailureEvent { stepKey error { ...Chain } }
        ... on RunFailureEvent { message error { ...Chain } }
        ... on EngineEvent { error { ...Chain } }
      }
    }
    ... on Error { message }
  }
}
fragment Chain on PythonError { className message causes { className message } }
"""

TERMINATE: Final = """
mutation Terminate($id: String!, $policy: TerminateRunPolicy!) {
  terminateRun(runId: $id, terminatePolicy: $policy) {
    __typename
    ... on TerminateRunFailure { message }
    ... on Error { message }
  }
}
"""
