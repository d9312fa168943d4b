"""Addresses and credentials: no secret is shown, and changes of the environment count at once."""

from __future__ import annotations

import re
import ssl
import sys
import traceback
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from urllib.parse import unquote

import pytest

from gpubeton._bytes import RemoteOptions, open_bytes
from gpubeton._bytes.object_store import ObjectIdentity, head_object
from gpubeton.errors import OptionError, RemoteDeniedError, RemoteTimeoutError, StorageError
from tests.bytes.fault_server import Fault, FaultServer
from tests.objects import read_object

SIGNED = ["X-Amz-Signature=hunter2&a=b", "Expires=1&Signature=hunter2", "x-goog-signature=hunter2", "sig=hunter2"]


@pytest.mark.parametrize("query", SIGNED)
def test_no_error_shows_a_signature_or_a_password(fault_server, query):
    fault_server.objects["x"] = bytes(1 << 20)
    url = f"{fault_server.url('x')}?{query}".replace("://", "://user:hunter2@")
    options = RemoteOptions(retry_seconds=0, silence_seconds=60)
    source = open_bytes(url, remote=options)
    others = [Fault(status) for status in (400, 403, 404, 412, 429, 500)] + [Fault(short=1), Fault(replace=b"other")]
    for fault in others:
        fault_server.faults.append(fault)
        with pytest.raises(StorageError) as raised:
            source.load(400_000, 100)
        shown = "".join(traceback.format_exception(raised.value))
        assert fault_server.url("x") in shown
        assert "hunter2" not in shown
    with pytest.raises(StorageError) as raised:
        source.load(1 << 20, 1)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("query", SIGNED)
def test_a_new_signature_finds_cached_data(query):
    url, other = f"https://u:p@host/a.beton?{query}", f"https://host/a.beton?{query.replace('hunter2', 'NEW')}"
    key = ObjectIdentity(1, url, '"e"').cache_key
    assert key == ObjectIdentity(1, other, '"e"').cache_key
    assert "hunter2" not in key
    assert key != ObjectIdentity(1, "https://host/a.beton?name=b", '"e"').cache_key


def test_files_that_differ_only_in_the_query_have_different_keys_also_beside_a_signature():
    def key(query):
        return ObjectIdentity(1, f"https://host/get?{query}", '"e"').cache_key

    files = [f"{name}={value}" for name in ("file", "versionId", "part") for value in "ab"]
    for secret in ("token=1", "X-Amz-Signature=1&X-Amz-Date=2", "sv=1&sr=b&skoid=3&sig=1", "Expires=5&Signature=1"):
        assert len({key(f"{file}&{secret}") for file in files}) == len(files)
        assert {key(f"{secret}&{file}") for file in files} == {key(file) for file in files}
    assert key("a=1&b=2&token=T") == key("b=2&token=U&a=1")
    assert key("a=1&a=2") != key("a=2&a=1")
    assert len({key("sp=1"), key("sp=2"), key("expires=1"), key("policy=a"), key("")}) == 5  # nothing is signed


@pytest.mark.parametrize("query", SIGNED)
def test_a_host_that_a_signed_url_is_redirected_to_does_not_learn_it(fault_server, query):
    with FaultServer() as other:
        other.objects["x"] = b"content"
        fault_server.always = Fault(302, headers={"Location": other.url("x")})
        for _ in range(2):
            with pytest.raises(StorageError, match=re.escape(other.address[7:])) as raised:
                read_object(f"{fault_server.url('x')}?{query}")
        assert "hunter2" not in "".join(traceback.format_exception(raised.value))
        assert other.requests == []
        assert read_object(f"{fault_server.url('x')}?name=b") == b"content"  # nothing is signed


def test_a_signed_url_may_be_redirected_on_its_host(fault_server):
    fault_server.objects["y"] = b"content"
    fault_server.faults.extend([Fault(302, headers={"Location": fault_server.url("y")}), None] * 2)
    assert read_object(f"{fault_server.url('x')}?{SIGNED[0]}") == b"content"


@pytest.mark.parametrize("query", ["", "?sig=a%2Fb+c&x=y%20z", "?x=é y"])
@pytest.mark.parametrize(
    "name", ["a+b", "a%2Bb", "a b", "a%b", "a;b=c,d", "ü/'(a)'", "a@b:c&d!e*f", 'a[b]|c\\d"e^f', "a%23%3F", "a%2Fb%20c"]
)
def test_every_request_names_a_file_alike(fault_server, name, query):
    fault_server.objects[unquote(name)] = content = bytes(3 << 20)
    source = open_bytes(fault_server.url(name) + query)
    assert bytes(source.load(1 << 20, 1 << 20)) == content[1 << 20 : 2 << 20]
    assert head_object(source.name).size == len(content)
    (path,) = {request.path for request in fault_server.requests}
    assert ("%2F" in path.partition("?")[0]) == ("%2F" in name)


@pytest.mark.parametrize("proxy", ["http_proxy", "ALL_PROXY"])
@pytest.mark.parametrize(("direct", "is_direct"), [("127.0.0.2", False), ("example.com,127.0.0.1", True)])
def test_a_proxy_is_asked_unless_the_server_needs_none(fault_server, monkeypatch, proxy, direct, is_direct):
    monkeypatch.setenv("NO_PROXY", direct)
    fault_server.objects["x"] = b"content"
    with FaultServer() as other:
        monkeypatch.setenv(proxy, other.address)
        other.objects[fault_server.url("x")[1:]] = b"from the proxy"
        assert read_object(fault_server.url("x")) == (b"content" if is_direct else b"from the proxy")
        assert (len(fault_server.requests), len(other.requests)) == (is_direct, not is_direct)


def test_a_file_whose_versions_cannot_be_known_is_refused(fault_server):
    fault_server.objects["x"] = b"content"
    fault_server.always = Fault(headers={"ETag": "", "Last-Modified": ""})
    with pytest.raises(StorageError, match="neither an ETag nor Last-Modified"):
        open_bytes(fault_server.url("x"))


def test_a_store_that_has_answered_is_waited_for(fault_server, monkeypatch):
    monkeypatch.setattr("gpubeton._bytes.store_client._FIRST_PATIENCE", 0.0)
    fault_server.objects["x"] = b"content"
    failures = [Fault(500)] * 3  # the client itself makes a request three times
    fault_server.faults.extend(failures)
    with pytest.raises(RemoteTimeoutError):
        head_object(fault_server.url("x"))
    head_object(fault_server.url("x"))
    fault_server.faults.extend(failures)
    assert head_object(fault_server.url("x")).size == 7


def test_the_endpoint_of_s3_comes_before_that_of_all_services(fault_server, monkeypatch):
    fault_server.objects["bucket/x"] = b"content"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", fault_server.address)
    remote = RemoteOptions(anonymous=True, retry_seconds=1)
    assert read_object("s3://bucket/x", remote) == b"content"
    assert fault_server.address in open_bytes("s3://bucket/x", remote=remote).identity().cache_key


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"])
def test_the_endpoint_of_the_options_comes_before_those_of_the_environment(fault_server, monkeypatch, variable):
    fault_server.objects["bucket/x"] = b"content"
    monkeypatch.setenv(variable, "http://127.0.0.1:1")
    remote = RemoteOptions(endpoint=fault_server.address, anonymous=True, retry_seconds=1)
    assert read_object("s3://bucket/x", remote) == b"content"


@pytest.mark.parametrize("fault", [Fault(301), Fault(400, "AuthorizationHeaderMalformed")])
def test_an_error_about_the_region_names_its_variable(fault_server, fault):
    fault_server.always = fault
    with pytest.raises(StorageError, match="AWS_REGION"):
        read_object("s3://bucket/x", RemoteOptions(endpoint=fault_server.address, anonymous=True))


def test_variables_that_change_count_at_once(fault_server, monkeypatch):
    fault_server.objects["bucket/x"] = b"content"
    monkeypatch.setenv("AWS_ENDPOINT_URL", fault_server.address)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    for key in ("first", "second"):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
        assert read_object("s3://bucket/x") == b"content"
        assert f"Credential={key}/" in fault_server.requests[-1].headers["authorization"]


@pytest.fixture
def files_of_aws(fault_server, tmp_path, monkeypatch):
    """A file with two profiles, and no credentials in the environment."""
    pytest.importorskip("boto3")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "credentials"
    file.write_text(
        "".join(f"[{n}]\naws_access_key_id={n}-key\naws_secret_access_key=x\n" for n in ("default", "mine"))
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", fault_server.address)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    bucket = f"bucket-{fault_server.address.rpartition(':')[2]}"  # which no other test has asked
    fault_server.objects[f"{bucket}/x"] = b"content"

    def used(options=None):
        fault_server.forget()
        read_object(f"s3://{bucket}/x", options)
        return fault_server.requests[-1].headers["authorization"].partition("Credential=")[2].partition("/")[0]

    return file, used


def test_credentials_come_from_the_environment_then_a_profile(files_of_aws, monkeypatch):
    _, used = files_of_aws
    assert used() == "default-key"
    monkeypatch.setenv("AWS_PROFILE", "mine")
    assert used() == "mine-key"
    assert used(RemoteOptions(profile="default")) == "default-key"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    assert used() == "environment"
    assert used(RemoteOptions(profile="mine")) == "mine-key"


def test_a_profile_that_is_not_there_is_named(files_of_aws, monkeypatch):
    _, used = files_of_aws
    monkeypatch.setenv("AWS_PROFILE", "none")
    with pytest.raises(OptionError, match="'none'"):
        used()


def test_without_boto3_files_count_only_if_asked_for(files_of_aws, monkeypatch):
    _, used = files_of_aws
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(RemoteDeniedError, match="AWS_ACCESS_KEY_ID"):
        used()
    with pytest.raises(OptionError, match="pip install boto3"):
        used(RemoteOptions(profile="mine"))


def test_credentials_that_expire_are_read_again_and_the_request_is_repeated_once(files_of_aws, fault_server):
    file, used = files_of_aws
    fault_server.faults.append(Fault(403))
    with pytest.raises(RemoteDeniedError):
        used()
    assert len(fault_server.requests) == 1  # no credentials were good before
    assert used() == "default-key"
    for name, status in (("newer", 403), ("newest", 400)):
        file.write_text(re.sub("=.*-key", f"={name}-key", file.read_text(), count=1))
        fault_server.faults.append(Fault(status, "ExpiredToken"))
        assert used() == f"{name}-key"
        assert len(fault_server.requests) == 2
    fault_server.faults += [Fault(403), Fault(403)]
    with pytest.raises(RemoteDeniedError):
        used()
    assert len(fault_server.requests) == 2


def certified(folder, place, *, days):
    """Make the certificate of a server by an authority; give the authority's file and the settings of the server."""
    pytest.importorskip("cryptography")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    ours, its = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("authority", "server")]
    begin = datetime.now(timezone.utc) - timedelta(days=10)

    def signed(name, key, extension, stop):
        new = x509.CertificateBuilder(names[0], name, key.public_key(), x509.random_serial_number(), begin, stop)
        return new.add_extension(extension, critical=True).sign(ours, hashes.SHA256())

    root = signed(names[0], ours, x509.BasicConstraints(ca=True, path_length=None), begin + timedelta(days=20))
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address(place))])
    leaf = signed(names[1], its, address, begin + timedelta(days=10 + days))
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    for file, content in (
        ("root.pem", root.public_bytes(pem)),
        ("leaf.pem", leaf.public_bytes(pem)),
        ("key.pem", its.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)),
    ):
        (folder / file).write_bytes(content)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "leaf.pem", folder / "key.pem")
    return folder / "root.pem", context


@pytest.mark.parametrize("is_endpoint", [False, True])
@pytest.mark.parametrize(
    ("fault", "place", "days", "is_trusted"),
    [
        ("UnknownIssuer", "127.0.0.1", 2, False),
        ("NotValidForName", "127.0.0.2", 2, True),
        ("Expired", "127.0.0.1", -2, True),
        (None, "127.0.0.1", 2, True),
    ],
)
def test_a_certificate_that_is_refused_is_named_at_once(
    fault, place, days, is_trusted, is_endpoint, tmp_path, monkeypatch
):
    authority, context = certified(tmp_path, place, days=days)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    if is_trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    with FaultServer() as server:
        server._server.socket = context.wrap_socket(server._server.socket, server_side=True)
        server.objects["bucket/x"] = b"content"
        address = server.address.replace("http:", "https:")
        options = RemoteOptions(retry_seconds=3600, endpoint=address if is_endpoint else None, anonymous=True)
        url = "s3://bucket/x" if is_endpoint else f"{address}/bucket/x"
        if fault is None:
            assert read_object(url, options) == b"content"
            return
        monkeypatch.setattr("gpubeton._bytes.store_client._FIRST_PATIENCE", 3600.0)  # repeats would take so long
        with pytest.raises(StorageError, match=f"certificate.*{fault}.*SSL_CERT_FILE"):
            read_object(url, options)


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"])
def test_an_endpoint_without_its_scheme_is_refused(variable, monkeypatch):
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    monkeypatch.setenv(variable, "minio:9000")
    with pytest.raises(
        OptionError, match=f"{variable} is 'minio:9000'; expected an address such as 'http://minio:9000'"
    ):
        head_object("s3://bucket/a.beton", RemoteOptions())
