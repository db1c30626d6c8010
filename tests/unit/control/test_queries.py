"""Every query fits the schema of the Dagster this project is pinned to."""

import pytest
from dagster_graphql.schema import create_schema
from graphql import parse, validate
from graphql.type import GraphQLSchema

from batch_pipelines.control import queries

DOCUMENTS = {
    name: value for name, value in vars(queries).items() if name.isupper() and not name.startswith("_")
}


@pytest.fixture(scope="module")
def schema() -> GraphQLSchema:
    made = create_schema().graphql_schema
    assert isinstance(made, GraphQLSchema)
    return made


@pytest.mark.parametrize("name", DOCUMENTS)
def test_query_fits_the_real_schema(name: str, schema: GraphQLSchema) -> None:
    assert validate(schema, parse(DOCUMENTS[name])) == []
