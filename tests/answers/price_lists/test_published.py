"""Price lists in the formats in which clouds publish them, typed by hand, and mistakes in them."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from sim.answers.price_lists.published import read_list
from sim.answers.price_lists.row import PriceListErrors, PriceRow
from sim.catalogue.catalog import load_catalog

CATALOG = load_catalog()
AWS_CSV = """\
"FormatVersion","v1.0"
"Disclaimer","This pricing list is for informational purposes only."
"Publication Date","2026-11-20T00:00:00Z"
"Version","20261120000000"
"OfferCode","AmazonEC2"
"SKU","OfferTermCode","RateCode","TermType","PriceDescription","EffectiveDate","StartingRange","EndingRange","Unit",\
"PricePerUnit","Currency","RelatedTo","LeaseContractLength","PurchaseOption","OfferingClass","Product Family",\
"serviceCode","Location","Location Type","Instance Type","Tenancy","Operating System","CapacityStatus","GPU",\
"Pre Installed S/W","Region Code"
"A","J","A.J","OnDemand","x","2026-11-01","0","Inf","Hrs","55.04","USD","","","","","Compute Instance","AmazonEC2",\
"US East (N. Virginia)","AWS Region","p5.48xlarge","Shared","Linux","Used","8","NA","us-east-1"
"A","R","A.R","Reserved","x","2026-11-01","0","Inf","Hrs","32.00","USD","","1yr","No Upfront","standard",\
"Compute Instance","AmazonEC2","US East (N. Virginia)","AWS Region","p5.48xlarge","Shared","Linux","Used","8","NA",\
"us-east-1"
"A","R","A.U","Reserved","x","2026-11-01","0","Inf","Quantity","280000","USD","","1yr","All Upfront","standard",\
"Compute Instance","AmazonEC2","US East (N. Virginia)","AWS Region","p5.48xlarge","Shared","Linux","Used","8","NA",\
"us-east-1"
"B","J","B.J","OnDemand","x","2026-11-01","0","Inf","Hrs","60","USD","","","","","Compute Instance","AmazonEC2",\
"US East (N. Virginia)","AWS Region","p5.48xlarge","Shared","Windows","Used","8","NA","us-east-1"
"C","J","C.J","OnDemand","x","2026-11-01","0","Inf","Hrs","1.006","USD","","","","","Compute Instance","AmazonEC2",\
"EU (Frankfurt)","AWS Region","g5.xlarge","Shared","Linux","Used","1","NA","eu-central-1"
"D","J","D.J","OnDemand","x","2026-11-01","0","Inf","Hrs","9","USD","","","","","Compute Instance","AmazonEC2",\
"EU (Frankfurt)","AWS Region","x9.large","Shared","Linux","Used","4","NA","eu-central-1"
"""
AWS_JSON: dict[str, Any] = {
    "formatVersion": "v1.0",
    "offerCode": "AmazonEC2",
    "products": {
        "A": {
            "sku": "A",
            "attributes": {
                "instanceType": "p4d.24xlarge",
                "regionCode": "us-west-2",
                "tenancy": "Shared",
                "operatingSystem": "Linux",
                "capacitystatus": "Used",
                "preInstalledSw": "NA",
                "gpu": "8",
            },
        }
    },
    "terms": {
        "OnDemand": {
            "A": {
                "A.J": {
                    "effectiveDate": "2026-10-01T00:00:00Z",
                    "priceDimensions": {"A.J.6": {"unit": "Hrs", "pricePerUnit": {"USD": "21.9576"}}},
                    "termAttributes": {},
                }
            }
        }
    },
}


def azure(**changes: Any) -> dict[str, Any]:
    """Return an item of Azure's list with *changes*."""
    return {
        "currencyCode": "USD",
        "retailPrice": 98.32,
        "armRegionName": "eastus",
        "effectiveStartDate": "2026-09-01T00:00:00Z",
        "meterName": "ND96isr H100 v5",
        "productName": "Virtual Machines NDsrH100v5 Series",
        "skuName": "Standard_ND96isr_H100_v5",
        "serviceName": "Virtual Machines",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "armSkuName": "Standard_ND96isr_H100_v5",
    } | changes


def google(description: str, usage: str = "OnDemand", group: str = "GPU") -> dict[str, Any]:
    """Return a SKU of Google's list."""
    rate = {"startUsageAmount": 0, "unitPrice": {"currencyCode": "USD", "units": "2", "nanos": 933908000}}
    return {
        "description": description,
        "category": {"resourceFamily": "Compute", "resourceGroup": group, "usageType": usage},
        "serviceRegions": ["us-central1", "us-east4"],
        "pricingInfo": [
            {
                "effectiveTime": "2026-11-05T01:02:03.4Z",
                "pricingExpression": {"usageUnit": "h", "tieredRates": [rate]},
            }
        ],
    }


LAMBDA = {
    "data": {
        "gpu_8x_h100_sxm5": {
            "instance_type": {
                "name": "gpu_8x_h100_sxm5",
                "gpu_description": "H100 (80 GB SXM5)",
                "price_cents_per_hour": 2392,
                "specs": {"gpus": 8},
            }
        }
    }
}
RUNPOD = {"data": {"gpuTypes": [{"id": "NVIDIA H100 80GB HBM3", "securePrice": 2.69, "secureSpotPrice": 1.75}]}}


def read(folder: Path, content: Any, **options: Any) -> list[PriceRow]:
    """Return the rows of a list with *content*, text or data of JSON."""
    path = folder / "list"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_list(path, CATALOG, **options).rows


def brief(rows: list[PriceRow]) -> list[tuple[str, str, str, float]]:
    """Return GPU, region, terms and price of *rows*."""
    return [(row.gpu, row.region, row.terms, row.price) for row in rows]


def test_an_offer_file_of_aws(tmp_path: Path) -> None:
    rows = read(tmp_path, AWS_CSV)
    assert brief(rows) == [
        ("h100-80gb-sxm", "us-east-1", "on demand", 6.88),
        ("h100-80gb-sxm", "us-east-1", "1-year reserved", 4.0),
        ("a10g", "eu-central-1", "on demand", 1.006),
    ]
    assert rows[0].item == "aws-h100-80gb-sxm"
    assert rows[0].offer == "us-east-1-on-demand-2026-11-01"
    assert rows[0].where == "p5.48xlarge: 55.04 an hour for 8 GPUs"
    assert read_list(tmp_path / "list", CATALOG).unknown == {"x9.large": 1}
    assert brief(read(tmp_path, AWS_CSV, regions=("eu-central-1",))) == [("a10g", "eu-central-1", "on demand", 1.006)]


def test_an_offer_file_of_aws_in_json(tmp_path: Path) -> None:
    assert brief(read(tmp_path, AWS_JSON)) == [("a100-40gb-sxm", "us-west-2", "on demand", 2.7447)]


def test_pages_of_azure(tmp_path: Path) -> None:
    items = [
        azure(),
        azure(skuName="ND96isr H100 v5 Spot", meterName="ND96isr H100 v5 Spot", retailPrice=39.328),
        azure(type="Reservation", reservationTerm="1 Year", retailPrice=560640.0),
        azure(productName="Virtual Machines NDsrH100v5 Series Windows"),
        azure(type="DevTestConsumption"),
        azure(armSkuName="Standard_D4s_v5"),
    ]
    assert brief(read(tmp_path, [{"Items": items[:2]}, {"Items": items[2:]}])) == [
        ("h100-80gb-sxm", "eastus", "on demand", 12.29),
        ("h100-80gb-sxm", "eastus", "spot", 4.916),
        ("h100-80gb-sxm", "eastus", "1-year reserved", 8.0),
    ]


def test_skus_of_google_are_gpus_alone(tmp_path: Path) -> None:
    skus = [
        google("Nvidia Tesla A100 GPU running in Americas"),
        google("Nvidia L4 GPU attached to Spot Preemptible VMs running in Americas", "Preemptible"),
        google("N1 Predefined Instance Core running in Americas", group="N1Standard"),
    ]
    rows = read(tmp_path, {"skus": skus})
    assert brief(rows)[::2] == [
        ("a100-40gb-sxm", "us-central1", "on demand", 2.933908),
        ("l4", "us-central1", "spot", 2.933908),
    ]
    assert rows[0].where.endswith("GPU alone")


@pytest.mark.slow
def test_lists_of_gpu_clouds_need_a_date(tmp_path: Path) -> None:
    day = date(2026, 11, 20)
    assert brief(read(tmp_path, LAMBDA, day=day)) == [("h100-80gb-sxm", "", "on demand", 2.99)]
    assert [(row.terms, row.price) for row in read(tmp_path, RUNPOD, day=day)] == [("on demand", 2.69), ("spot", 1.75)]
    with pytest.raises(PriceListErrors, match="has no date"):
        read(tmp_path, LAMBDA)


def test_a_csv_of_ones_own(tmp_path: Path) -> None:
    text = "Provider;GPU;Region;Price per GPU hour;Currency;Date\nAcme;H100;eu;2.10;EUR;2026-11-01\n"
    [row] = read(tmp_path, text)
    assert (row.gpu, row.price, row.currency, row.as_of) == ("h100-80gb-sxm", 2.1, "EUR", date(2026, 11, 1))
    [row] = read(tmp_path, "gpu,gpus,price\nh200,8,24\n", day=date(2026, 11, 2), provider="Acme")
    assert (row.price, row.offer) == (3.0, "on-demand-2026-11-02")


def test_the_cheapest_of_several_instance_types_is_the_offer(tmp_path: Path) -> None:
    [g5] = [line for line in AWS_CSV.splitlines() if "g5.xlarge" in line]
    larger = g5.replace("g5.xlarge", "g5.2xlarge").replace("1.006", "1.212")
    rows = read(tmp_path, f"{AWS_CSV}{larger}\n")
    assert [(row.price, row.where) for row in rows if row.gpu == "a10g"] == [(1.006, "g5.xlarge")]


@pytest.mark.parametrize(
    ("content", "mistakes"),
    [
        ("", ["list: is empty"]),
        ('{"Items": [', ["list:1: is not valid JSON"]),
        ("[" * 100_000, ["list:1: is not valid JSON"]),
        ('{"rows": []}', ["list: is not a price list of AWS"]),
        ('{"Items": []}', ["list: has no price for a GPU"]),
        ("card,cost\nh100,2\n", ["list:1: has no column gpu; it has card, cost"]),
        (
            "gpu,price,provider,date,currency\nh1000,2,A,2026-11-01,USD\nh100,-2,A,2026-11-01,USD\n"
            "h100,2,A,soon,USD\nh100,two,A,2026-11-01,USD\nh100,2,A,2026-11-01,Taler\nh100,2,,2026-11-01,USD\n",
            [
                "list:2: unknown gpu 'h1000'",
                "list:3: h100: the price -2 is not between",
                "list:4: 'soon' is not a date",
                "list:5: h100: the price must be a number, not 'two'",
                "list:6: h100: 'Taler' is not a currency code",
                "list:7: has no provider",
            ],
        ),
        (
            "gpu,price,provider,unit,date\nh100,1500,A,month,2026-11-01\n",
            ["list:2: unit 'month': the price of a GPU-hour"],
        ),
        (AWS_CSV.replace('"Used","8","NA"', '"Used","","NA"'), ["list:7: p5.48xlarge: the number of GPUs is missing"]),
        ({"Items": [azure(retailPrice="n/a")]}, ["list: Standard_ND96isr_H100_v5: the price must be a number"]),
    ],
)
def test_mistakes_in_lists_are_reported_with_their_lines(tmp_path: Path, content: Any, mistakes: list[str]) -> None:
    with pytest.raises(PriceListErrors) as caught:
        read(tmp_path, content)
    lines = str(caught.value).replace(f"{tmp_path}/", "").splitlines()
    assert [line for line, start in zip(lines, mistakes, strict=False) if not line.startswith(start)] == []


def test_a_region_that_a_list_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PriceListErrors, match="has no region mars; it has eu-central-1, us-east-1"):
        read(tmp_path, AWS_CSV, regions=("mars",))
