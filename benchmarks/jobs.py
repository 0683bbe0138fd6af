from django_jobs import job


@job
def nothing(number: int) -> None:
    pass
