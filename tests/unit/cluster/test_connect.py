"""Invalid connection strings are refused with a named error that does not contain their credentials.

Strings that need a missing package are refused, too. The settings of a client are right for a sync.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from pymongo import ReadPreference
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from verifier.cluster.connect import INVALID_URI, MISSING_PACKAGE, check_uri, connect
from verifier.runtime.errors import ErrorKind, OperationError


def refusal(
    uri: str, use: Callable[[str], object] = check_uri, kind: ErrorKind = INVALID_URI
) -> str:
    with pytest.raises(OperationError) as raised:
        use(uri)
    assert raised.value.kind is kind
    return raised.value.description


def connect_to(uri: str) -> None:
    connect(uri, "test").close()


@pytest.mark.parametrize(
    "uri",
    [
        "mongodb://host",
        "mongodb://host:27017,other:27018/db?replicaSet=rs0",
        "mongodb://user:p%40ss@host/?authSource=admin",
        "mongodb://[::1]:27017",
        "mongodb://%2Ftmp%2Fmongodb-27017.sock",
        "mongodb://host/?readConcernLevel=majority&w=majority&readPreference=primary",
        "mongodb://host/?READPREFERENCE=primary&W=majority",
        "mongodb://host/?serverSelectionTimeoutMS=500&connectTimeoutMS=500&tls=true",
        "mongodb://host/?loadBalanced=false",
        "mongodb://host/?maxPoolSize=10",
        "mongodb://host/?maxPoolSize=0",
        "mongodb://host/?readPreferenceTags=a:b&readPreferenceTags=c:d",
    ],
)
def test_a_usable_string_passes(uri: str) -> None:
    check_uri(uri)


CONCERNS = [
    ("readConcernLevel=local", "read concern must be majority"),
    ("readconcernlevel=linearizable", "read concern must be majority"),
    ("w=1", "write concern must be majority"),
    ("W=0", "write concern must be majority"),
    ("w=", "write concern must be majority"),
    ("readPreference=secondary", "read preference must be primary"),
    ("readpreference=primaryPreferred", "read preference must be primary"),
    ("socketTimeoutMS=1000", "socketTimeoutMS must not be set"),
    ("sockettimeoutms=1000", "socketTimeoutMS must not be set"),
    ("timeoutMS=500", "timeoutMS must not be set"),
    ("waitQueueTimeoutMS=50", "waitQueueTimeoutMS must not be set"),
    ("maxPoolSize=1", "maxPoolSize must be at least 10, or 0 for no limit"),
    ("maxpoolsize=9", "maxPoolSize must be at least 10, or 0 for no limit"),
    ("loadBalanced=true", "loadBalanced must be false"),
    ("w=majority&w=majority", "w must be given only once"),
    ("tls=true;TLS=true", "tls must be given only once"),
]


@pytest.mark.parametrize("option, violation", CONCERNS)
def test_unsafe_options_are_refused(option: str, violation: str) -> None:
    assert refusal(f"mongodb://host/?{option}") == f"Invalid URI option, {violation}."


def test_all_violations_are_named_at_once() -> None:
    query = "readConcernLevel=local&w=1&readPreference=nearest&socketTimeoutMS=1"
    assert refusal(f"mongodb://host/?{query}").count("Invalid URI option") == 4


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "host:27017",
        "http://host",
        "mongodb://",
        "mongodb://host:port",
        "mongodb://host:65536",
        "mongodb://[::1",
        "mongodb://host/?unknown=1",
        "mongodb://host/?tls",
        "mongodb://host/?tls=maybe",
        "mongodb://host/?tls=true&ssl=false",
        "mongodb://host/a b",
        "mongodb://user:a@b@host",
        "mongodb://user:a%zz@host",
        "mongodb://:secret@host",
        "mongodb://host/?uuidRepresentation=odd",
    ],
)
def test_a_string_that_is_malformed_is_refused(uri: str) -> None:
    assert refusal(uri).endswith(".")


# The modules that the driver imports for an option, and the extra that installs them.
EXTRAS = [
    ("compressors=snappy", ["snappy"], "snappy"),
    ("compressors=zstd", ["backports", "zstandard", "compression"], "zstd"),
    ("compressors=zlib,snappy", ["snappy"], "snappy"),
    ("authMechanism=MONGODB-AWS", ["pymongo_auth_aws"], "aws"),
    ("authMechanism=GSSAPI&authSource=$external", ["kerberos"], "gssapi"),
]


@pytest.mark.parametrize("options, modules, extra", EXTRAS)
def test_an_option_whose_package_is_missing_is_refused_with_the_remedy(
    options: str, modules: list[str], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)
    text = refusal(f"mongodb://user:{SECRET}@host/?{options}", kind=MISSING_PACKAGE)
    assert f"pip install 'pymongo[{extra}]'" in text
    assert SECRET not in text


def test_all_missing_packages_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("snappy", "pymongo_auth_aws"):
        monkeypatch.setitem(sys.modules, module, None)
    query = "compressors=snappy,zlib&authMechanism=MONGODB-AWS"
    assert "pymongo[aws,snappy]" in refusal(f"mongodb://host/?{query}", kind=MISSING_PACKAGE)


def test_an_unknown_compressor_is_refused() -> None:
    assert "must be some of zlib, snappy, zstd" in refusal("mongodb://host/?compressors=lz4,zlib")


@pytest.mark.parametrize(
    "options",
    [
        "compressors=zlib",
        "COMPRESSORS=zlib&zlibCompressionLevel=9",
        "authMechanism=MONGODB-X509&tls=true",
        "authMechanism=SCRAM-SHA-1",
        "authMechanism=SCRAM-SHA-256",
        "authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:k8s",
        "authMechanism=PLAIN&authSource=$external",
    ],
)
def test_options_that_need_no_extra_package(options: str) -> None:
    name = "" if "OIDC" in options or "X509" in options else "user:password@"
    with connect(f"mongodb://{name}host/?{options}&connect=false", "test") as client:
        assert client.options.pool_options.appname == "test"


def test_oidc_without_an_environment_is_refused() -> None:
    assert "environment" in refusal("mongodb://host/?authMechanism=MONGODB-OIDC", connect_to)


SECRET = "S3cr3t"


@pytest.mark.parametrize(
    "uri",
    [
        f"mongodb://user:{SECRET}@host:port",
        f"mongodb://user:{SECRET}",
        f"mongodb://user:{SECRET}@",
        f"mongodb://user:{SECRET}@h@host",
        f"mongodb://user:{SECRET}%zz@host",
        f"mongodb://user:{SECRET}@host/?w=1&unknown=1",
        f"mongodb://user:x/{SECRET}@host",
        f"mongodb://user:x?{SECRET}@host",
        f"mongodb://host/?tlsCertificateKeyFilePassword={SECRET}&unknown=1",
        f"mongodb://host/?authMechanismProperties={SECRET}",
        f"http://user:{SECRET}@host",
        f"mongodb://user:27017/{SECRET}@host/?appName=a",
        f"mongodb://user/{SECRET}@host",
    ],
)
def test_a_refusal_shows_no_credentials(uri: str) -> None:
    assert SECRET not in refusal(uri)


ODD_PIECES = ["/", "?", "@", ":", "%", "=", "&", "[", "]", ",", "#", " ", "x", "1", "tls="]
pieces = st.lists(st.sampled_from(ODD_PIECES), max_size=5).map("".join)


@settings(phases=[Phase.explicit, Phase.generate])
@given(user=st.sampled_from(["user", "1", "h:1", "u@h"]), before=pieces, after=pieces)
@example(user="user", before="27?", after="")
def test_a_refusal_shows_no_password_with_odd_characters(
    user: str, before: str, after: str
) -> None:
    try:
        check_uri(f"mongodb://{user}:{before}{SECRET}{after}@host:27017/db?appName=x")
    except OperationError as error:
        assert SECRET.lower() not in str(error).lower()


OPTIONS = [
    *("appName", "authMechanism", "authMechanismProperties", "authSource", "compressors"),
    *("connectTimeoutMS", "directConnection", "heartbeatFrequencyMS", "journal", "loadBalanced"),
    *("localThresholdMS", "maxIdleTimeMS", "maxPoolSize", "maxStalenessSeconds", "minPoolSize"),
    *("readConcernLevel", "readPreference", "readPreferenceTags", "replicaSet", "retryReads"),
    *("retryWrites", "serverMonitoringMode", "serverSelectionTimeoutMS", "socketTimeoutMS"),
    *("srvMaxHosts", "srvServiceName", "ssl", "timeoutMS", "tls", "tlsInsecure", "w"),
    *("tlsAllowInvalidCertificates", "tlsCertificateKeyFilePassword", "uuidRepresentation"),
    *("waitQueueTimeoutMS", "wTimeoutMS", "zlibCompressionLevel", "unknown", "", "tz_aware"),
]
odd_values = st.sampled_from(["", "0", "1", "-1", "true", "zstd", "a:b", "%", "1.5", "9" * 30])
queries = st.lists(
    st.tuples(st.sampled_from(OPTIONS), odd_values | st.text(max_size=5)).map("=".join), max_size=3
).map("&".join)


@given(st.text(max_size=30) | st.text(max_size=30).map("mongodb://".__add__))
@example("mongodb://\ud800")
@example("mongodb://" + "x" * 100_000)
@example("mongodb://" + "h," * 1000)
def test_any_text_is_usable_or_refused(uri: str) -> None:
    try:
        check_uri(uri)
    except OperationError as error:
        assert error.kind is INVALID_URI


@given(queries)
def test_any_options_are_usable_or_refused(query: str) -> None:
    try:
        check_uri(f"mongodb://host/?{query}")
    except OperationError as error:
        assert error.kind in (INVALID_URI, MISSING_PACKAGE)


@pytest.mark.parametrize(
    "option",
    [
        "tlsCAFile=/no/such/file",
        "tlsCertificateKeyFile=/no/such/file",
        "tlsCRLFile=/no/such/file",
        "server_api=1",
        "datetime_conversion=odd",
    ],
)
def test_an_option_that_makes_the_driver_fail_is_refused(option: str) -> None:
    refusal(f"mongodb://host/?{option}")


@pytest.mark.parametrize(
    "option",
    [
        "heartbeatFrequencyMS=1",
        pytest.param(
            "minPoolSize=2&maxPoolSize=1",
        ),
        pytest.param(
            "tls=true&tlsCAFile=/dev/null",
        ),
    ],
)
def test_options_that_only_the_client_refuses_are_refused(option: str) -> None:
    refusal(f"mongodb://host/?connect=false&{option}", connect_to)


def test_a_client_reads_from_the_primary_and_waits_for_the_majority() -> None:
    with connect("mongodb://host/?connect=false", "test") as client:
        assert client.read_concern == ReadConcern("majority")
        assert client.write_concern == WriteConcern("majority")
        assert client.read_preference == ReadPreference.PRIMARY
        assert client.options.pool_options.appname == "test"


@pytest.mark.parametrize(
    "query, seconds",
    [("", 10.0), ("&serverSelectionTimeoutMS=500", 0.5), ("&serverselectiontimeoutms=500", 0.5)],
)
def test_a_wait_for_a_primary_is_short_unless_the_string_says_otherwise(
    query: str, seconds: float
) -> None:
    with connect(f"mongodb://host/?connect=false{query}", "test") as client:
        assert client.options.server_selection_timeout == seconds
