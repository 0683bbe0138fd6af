"""What a person does on the pages, in the words of the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.urls import reverse
from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.support import expected_conditions as conditions
from selenium.webdriver.support.ui import Select, WebDriverWait

if TYPE_CHECKING:
    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

    from django_jobs.models import Job


def _is_gone(element: WebElement) -> bool:
    """Tell whether another page was loaded; in the midst of that the browser may find another word than stale."""
    try:
        element.is_enabled()
    except StaleElementReferenceException:
        return True
    except WebDriverException as error:
        return "does not belong to the document" in str(error)
    return False


class Pages:
    def __init__(self, driver: Chrome, url: str) -> None:
        self.driver = driver
        self.url = url

    def log_in(self, name: str, password: str) -> None:
        self.open("/admin/login/")
        self.one("#id_username").send_keys(name)
        self.one("#id_password").send_keys(password)
        self.click("input[type=submit]")
        assert self.one("#user-tools").is_displayed()

    def open(self, address: str) -> None:
        self.driver.get(self.url + address)

    def jobs(self, **query: Any) -> None:
        asked = "&".join(f"{name}={value}" for name, value in query.items())
        self.open(f"{reverse('admin:django_jobs_job_changelist')}?{asked}")

    def job(self, job: Job) -> None:
        self.open(reverse("admin:django_jobs_job_change", args=[job.pk]))

    def one(self, selector: str) -> WebElement:
        """Return an element, waiting for it."""
        return WebDriverWait(self.driver, 10).until(
            conditions.presence_of_element_located((By.CSS_SELECTOR, selector)), f"nothing fits {selector}"
        )

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        """Return what is read in each element that fits now, in one step: the page may change itself."""
        script = "return Array.from(document.querySelectorAll(arguments[0]), found => found.innerText)"
        return [" ".join(text.split()) for text in self.driver.execute_script(script, selector)]

    def click(self, selector: str) -> None:
        """Click what loads another page, and wait for that."""
        here = self.one("html")
        self.one(selector).click()
        WebDriverWait(self.driver, 10).until(lambda _: _is_gone(here), f"{selector} led nowhere")
        self.one("body")

    def click_link(self, text: str) -> None:
        here = self.one("html")
        self.driver.find_element(By.LINK_TEXT, text).click()
        WebDriverWait(self.driver, 10).until(lambda _: _is_gone(here), f"{text} led nowhere")

    def search(self, term: str) -> None:
        self.one("#searchbar").clear()
        self.one("#searchbar").send_keys(term)
        self.click("#changelist-search input[type=submit]")

    def act_on(self, jobs: list[Job], action: str, why: str = "") -> None:
        for job in jobs:
            self.one(f"input.action-select[value='{job.pk}']").click()
        Select(self.one("select[name=action]")).select_by_value(action)
        if why:
            self.one("input[name=why]").send_keys(why)
        self.click("button[name=index]")

    @property
    def ids(self) -> list[int]:
        """Return the ids of the jobs in the list, in its order."""
        return [int(found.text) for found in self.all("#result_list .field-number")]

    @property
    def messages(self) -> list[str]:
        return self.texts(".messagelist li")

    @property
    def page(self) -> str:
        return str(self.one("#content").text)

    def background(self) -> str:
        return str(self.driver.execute_script("return getComputedStyle(document.body).backgroundColor"))
