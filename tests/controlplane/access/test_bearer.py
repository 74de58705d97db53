import pytest

from controlplane.access.bearer import authorization
from controlplane.cli.gateway_client import Client as CommandsClient
from controlplane.client import Client, InvalidInput

URL = "http://127.0.0.1:1"


@pytest.mark.parametrize("token", ["open sesame", " open sesame\n", "\topen sesame\r\n"])
def test_what_stands_around_a_token_is_no_part_of_it(token: str) -> None:
    assert authorization(token) == {"Authorization": "Bearer open sesame"}


@pytest.mark.parametrize("token", ["", "\n"])
def test_without_a_token_there_is_no_header(token: str) -> None:
    assert authorization(token) == {}


@pytest.mark.parametrize("token", ["open\nsesame", "ses\0ame", "sésame", "€"])
@pytest.mark.parametrize("client", [Client, CommandsClient])
def test_a_token_that_no_header_can_carry_is_refused_and_not_shown(
    client: type[Client] | type[CommandsClient], token: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        client(URL, token=token)
    assert refused.value.message == (
        "the token cannot be sent: a header carries printable characters of ASCII alone"
    )
